"""What users write: environment, streams, functions, windows; it builds a plain-data graph."""
