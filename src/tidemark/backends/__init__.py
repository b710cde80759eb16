"""How state is *kept*: the heap and RocksDB backends behind the contract of `tidemark.state.backend`."""
