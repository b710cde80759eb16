"""Kafka as source and sink: what users declare. Only the drivers and tasks of jobs that use it import the client."""
