"""How functions are *driven*: events in (batch, watermark, end), outputs out; no Spark, no socket."""
