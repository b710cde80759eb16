"""Settings: the option table, where values come from, and the config objects an environment hands out."""

from __future__ import annotations

from tidemark.config.checkpointing import CheckpointSettings, retained_checkpoints
from tidemark.config.configuration import Configuration
from tidemark.config.loader import effective_configuration
from tidemark.config.modes import (
    CheckpointingMode,
    ExecutionMode,
    ExternalizedCheckpointCleanup,
    ExternalizedCheckpointRetention,
    RuntimeExecutionMode,
)
from tidemark.config.option import ConfigOption, ConfigOptions
from tidemark.config.options import Options
from tidemark.config.restart import (
    RestartStrategies,
    RestartStrategyConfiguration,
    resolve_restart_strategy,
)
from tidemark.config.units import MemorySize

__all__ = [
    "CheckpointSettings",
    "CheckpointingMode",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "ExecutionMode",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "MemorySize",
    "Options",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "RuntimeExecutionMode",
    "effective_configuration",
    "resolve_restart_strategy",
    "retained_checkpoints",
]
