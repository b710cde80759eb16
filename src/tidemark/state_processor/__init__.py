"""The state processor: snapshots read, changed and written as Spark data, without a running job.

Importing this starts no JVM; `register(spark)` makes `spark.read.format("tidemark")` known to a session
(using `SavepointReader` or `SavepointWriter` on Spark does so too).
"""

from __future__ import annotations

from tidemark.state_processor.bootstrap import (
    KeyedOperatorTransformation,
    OneInputOperatorTransformation,
    OperatorTransformation,
    StateBootstrapTransformation,
)
from tidemark.state_processor.diff import StateDiff, diff
from tidemark.state_processor.erasure import ErasureProof, erase_from_job
from tidemark.state_processor.functions import (
    BroadcastStateBootstrapFunction,
    KeyedStateBootstrapFunction,
    KeyedStateReaderFunction,
    StateBootstrapFunction,
    WindowReaderFunction,
)
from tidemark.state_processor.reader import SavepointReader, WindowSavepointReader
from tidemark.state_processor.rewrite import erase_key, migrate_keys, rekey
from tidemark.state_processor.spark import register
from tidemark.state_processor.streams import StateStream
from tidemark.state_processor.writer import SavepointWriter

__all__ = [
    "BroadcastStateBootstrapFunction",
    "ErasureProof",
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
    "erase_from_job",
    "erase_key",
    "migrate_keys",
    "register",
    "rekey",
]
