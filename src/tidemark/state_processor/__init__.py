"""Read, write and change savepoints as Spark data. PyFlink-style import path of `tidemark.processor`.

Importing this starts no JVM; `register(spark)` makes `spark.read.format("tidemark")` known to a session
(using `SavepointReader` or `SavepointWriter` on Spark does so too).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.processor.bootstrap import (
    KeyedOperatorTransformation,
    OneInputOperatorTransformation,
    OperatorTransformation,
    StateBootstrapTransformation,
)
from tidemark.processor.diff import StateDiff, diff
from tidemark.processor.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    StateBootstrapFunction,
    WindowReaderFunction,
)
from tidemark.processor.reader import SavepointReader, WindowSavepointReader
from tidemark.processor.rewrite import erase_key, migrate_keys, rekey
from tidemark.processor.streams import StateStream
from tidemark.processor.writer import SavepointWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BroadcastStateBootstrapFunction",
    "KeyedOperatorTransformation",
    "KeyedStateBootstrapFunction",
    "KeyedStateReaderFunction",
    "OneInputOperatorTransformation",
    "OperatorTransformation",
    "SavepointReader",
    "SavepointWriter",
    "StateBootstrapFunction",
    "StateBootstrapTransformation",
    "StateDiff",
    "StateStream",
    "WindowReaderFunction",
    "WindowSavepointReader",
    "diff",
    "erase_key",
    "migrate_keys",
    "register",
    "rekey",
]


def register(spark: SparkSession) -> None:
    """Make the data source `tidemark` known to a Spark session; again is no error."""
    from tidemark.processor.datasource import register as register_source

    register_source(spark)
