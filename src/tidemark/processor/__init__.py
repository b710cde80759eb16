"""The state processor: snapshots read, changed and written as Spark data, without a running job."""
