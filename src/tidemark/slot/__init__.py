"""The process that hosts operators: framing, deployment, snapshots, lease; knows no Spark."""
