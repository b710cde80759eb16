"""Kafka as source and sink: what users declare. `runtime` drives it, and imports the client when a job needs it."""
