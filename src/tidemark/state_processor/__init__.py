"""Read, write and change savepoints as Spark data. PyFlink-style import path of `tidemark.processor`.

Importing this starts no JVM; `register(spark)` makes `spark.read.format("tidemark")` known to a session
(using `SavepointReader` or `SavepointWriter` on Spark does so too).
"""

from __future__ import annotations

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
from tidemark.processor.spark import register
from tidemark.processor.streams import StateStream
from tidemark.processor.writer import SavepointWriter

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
