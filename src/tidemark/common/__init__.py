"""Names that PyFlink keeps in `pyflink.common`."""

from __future__ import annotations

from tidemark.api.execution_config import ExecutionConfig
from tidemark.api.job import (
    JobClient,
    JobExecutionResult,
    JobStatus,
)
from tidemark.api.watermarks import WatermarkStrategy
from tidemark.config import (
    ConfigOption,
    ConfigOptions,
    Configuration,
    RestartStrategies,
    RestartStrategyConfiguration,
)
from tidemark.formats.schemas import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from tidemark.futures import CompletableFuture
from tidemark.ids import JobID
from tidemark.state.serializers import TypeSerializer
from tidemark.types.row import (
    Row,
    RowKind,
)
from tidemark.types.time import (
    Duration,
    Instant,
    Time,
)
from tidemark.types.typeinfo import (
    TypeInformation,
    Types,
)

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]
