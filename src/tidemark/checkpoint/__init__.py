"""How state is made durable: storage, snapshot format, metadata, coordination, retention, rescaling."""
