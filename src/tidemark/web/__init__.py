"""Jobs over HTTP: Flink's REST, metrics for Prometheus, server-sent events and the page, over any `JobView`."""
