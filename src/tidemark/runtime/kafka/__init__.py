"""The Kafka client as jobs use it: made from properties, its errors in our words. Sources and sinks are built on it."""
