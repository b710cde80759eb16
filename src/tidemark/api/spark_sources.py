"""What a streaming DataFrame reads from: whether it can be replayed, and what tells its partitions apart.

Looks at the frame's logical plan through its own methods; imports no pyspark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemark.api.specs import SparkStreamSourceSpec
from tidemark.errors import ConfigError

__all__ = ["stream_spec"]

_NOT_REPLAYABLE = {
    "socket": "a socket forgets what it has sent. Write the lines into files or Kafka and read those",
    "memory": "a memory stream drops what Spark has committed. Use files, or a Python data source",
}
_FILES = "FileSource["
_CLOSED = {_FILES, "rate", "rate-micro-batch"}
"""Sources none of whose partitions goes on in a later batch: files are read once, rates are in order as a whole."""
_KAFKA_COLUMNS = ("topic", "partition")


def stream_spec(frame: Any, partition_by: str | Sequence[str] | None) -> SparkStreamSourceSpec:
    """What the graph says of a source that reads a streaming frame.

    Raises:
        ConfigError: A source cannot be replayed, or `partition_by` names no column of the frame.
    """
    names = _source_names(frame)
    for name in names:
        why = _NOT_REPLAYABLE.get(name)
        if why is not None:
            raise ConfigError(
                f"from_spark_stream() cannot read from '{name}': it is not replayable, so a failure would lose "
                f"records; {why}."
            )
    columns = [field.name for field in frame.schema.fields]
    wanted = [partition_by] if isinstance(partition_by, str) else list(partition_by or ())
    for column in wanted:
        if column not in columns:
            raise ConfigError(
                f"partition_by names the column '{column}', which the frame does not have: {', '.join(columns)}."
            )
    if not wanted and set(names) == {"kafka"} and set(_KAFKA_COLUMNS) <= set(columns):
        wanted = list(_KAFKA_COLUMNS)
    kinds = {_FILES if name.startswith(_FILES) else name for name in names}
    origin = tuple(columns.index(column) for column in wanted)
    return SparkStreamSourceSpec(frame, origin, closed=len(kinds) == 1 and kinds <= _CLOSED)


def _source_names(frame: Any) -> list[str]:
    """Names of the streams a frame is made of, as Spark calls them; none for what is not from Spark's JVM."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return []
    leaves = plan.queryExecution().analyzed().collectLeaves()
    found = [leaves.apply(at) for at in range(leaves.size())]
    return [_name(leaf) for leaf in found if leaf.isStreaming()]


def _name(leaf: Any) -> str:
    if leaf.getClass().getSimpleName() in ("StreamingRelation", "StreamingRelationV2"):
        return str(leaf.sourceName())
    # A stream made of objects of the JVM: Spark's own tests do so.
    text = str(leaf.toString())
    return "memory" if "memory" in text.lower() else text
