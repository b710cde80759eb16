"""Built-in sources and sinks, as plain data that the runtime interprets."""
