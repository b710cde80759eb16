"""The seam between building a job and running it: settings, parallelism rules and the `Executor` lookup."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from tidemark.api.graph import Graph, Node
from tidemark.api.specs import SourceSpec
from tidemark.api.state_backends.heap import MemoryStateBackend
from tidemark.config import (
    CheckpointSettings,
    Configuration,
    Options,
    RestartStrategies,
    RestartStrategyConfiguration,
    RuntimeExecutionMode,
)
from tidemark.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.api.checkpoint_storage import CheckpointStorage
    from tidemark.api.job import JobClient
    from tidemark.api.state_backends import StateBackend

__all__ = [
    "CachedFile",
    "Executor",
    "JobSettings",
    "PlannedMode",
    "PlansModes",
    "PythonArtifacts",
    "executing_with",
    "executor_for",
    "explicit_max_parallelism",
    "is_batch",
    "resolve_max_parallelism",
    "resolve_parallelism",
    "unbounded_sources",
]

_EXECUTORS = {
    "spark": "tidemark.runtime.spark_executor:SparkExecutor",
    "local": "tidemark.runtime.local_executor:LocalExecutor",
}


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A file users read on the workers under a name."""

    path: str
    name: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class PythonArtifacts:
    """What has to be shipped to the workers before user code runs there."""

    files: tuple[str, ...] = ()
    archives: tuple[tuple[str, str | None], ...] = ()
    """(path, target directory) pairs."""
    requirements: str | None = None
    requirements_cache: str | None = None
    """Directory of packages that the requirements are installed from."""
    executable: str | None = None
    cached_files: tuple[CachedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSettings:
    """All an executor needs to know besides the graph; everything is resolved and validated."""

    job_name: str = "Flink Streaming Job"
    parallelism: int = 1
    """Of every operator that has none of its own."""
    max_parallelism: int | None = None
    """Number of key groups of every keyed operator that has none of its own; None: derived."""
    configuration: Configuration = field(default_factory=Configuration)
    """Effective: all layers merged, defaults filled in."""
    layers: dict[str, str] = field(default_factory=dict)
    """Key -> the layer that set it (`config.loader.layers_of`), for displays."""
    checkpointing: CheckpointSettings = field(default_factory=CheckpointSettings)
    """Always disabled in batch mode."""
    state_backend: StateBackend = field(default_factory=MemoryStateBackend)
    checkpoint_storage: CheckpointStorage | None = None
    restart_strategy: RestartStrategyConfiguration = field(default_factory=RestartStrategies.no_restart)
    """Never a fallback."""
    batch_mode: bool = False
    savepoint_path: str | None = None
    """Restore from here at start."""
    allow_non_restored_state: bool = False
    savepoint_directory: str | None = None
    """Target of savepoints that are triggered without one."""
    job_parameters: dict[str, str] = field(default_factory=dict)
    snapshot_compression: bool = False
    artifacts: PythonArtifacts = field(default_factory=PythonArtifacts)


@dataclass(frozen=True, slots=True)
class PlannedMode:
    """How a job would run (`execution.mode`)."""

    mode: str | None
    """`epochs` or `continuous`; None: it would be refused."""
    reason: str
    """For people."""


@runtime_checkable
class PlansModes(Protocol):
    """What an `Executor` may be besides."""

    def planned_mode(self, graph: Graph, settings: JobSettings) -> PlannedMode:
        """How the job would run if it were submitted now; starts nothing."""


class Executor(Protocol):
    """Runs graphs."""

    def submit(self, graph: Graph, settings: JobSettings) -> JobClient:
        """Start the job and return at once.

        Errors that are known before anything runs (a savepoint that is missing or does not fit, say) are
        raised here, unwrapped.
        """


_stand_ins: list[Executor] = []


@contextlib.contextmanager
def executing_with(executor: Executor) -> Iterator[None]:
    """Hand every job of this process to `executor` inside the block, whatever `execution.target` says."""
    _stand_ins.append(executor)
    try:
        yield
    finally:
        _stand_ins.remove(executor)


def executor_for(name: str) -> Executor:
    """A new executor of that name (`execution.target`); its module is imported only now.

    Raises:
        ConfigError: The name is neither known nor of the form `package.module:Class`.
    """
    if _stand_ins:
        return _stand_ins[-1]
    location = _EXECUTORS.get(name.strip().lower(), name.strip())
    module_name, _, attribute = location.partition(":")
    if not attribute:
        raise ConfigError(
            f"Unknown execution target '{name}'. Use spark, local or package.module:Class.",
            key=Options.EXECUTION_TARGET.key,
        )
    try:
        maker = cast("Callable[[], Executor]", getattr(importlib.import_module(module_name), attribute))
    except AttributeError as exc:
        raise ConfigError(
            f"Execution target '{name}': module {module_name} has no {attribute}.",
            key=Options.EXECUTION_TARGET.key,
        ) from exc
    return maker()


def resolve_parallelism(node: Node, settings: JobSettings) -> int:
    """Number of subtasks of a node."""
    if node.forced_non_parallel:
        return 1
    return node.parallelism if node.parallelism is not None else settings.parallelism


def resolve_max_parallelism(node: Node, settings: JobSettings, parallelism: int) -> int:
    """Number of key groups of a node."""
    from tidemark.state.key_groups import compute_default_max_parallelism

    explicit = explicit_max_parallelism(node, settings)
    return compute_default_max_parallelism(parallelism) if explicit is None else explicit


def explicit_max_parallelism(node: Node, settings: JobSettings) -> int | None:
    """Number of key groups somebody asked for, or None; only without one may a restore adopt the snapshot's."""
    return node.max_parallelism if node.max_parallelism is not None else settings.max_parallelism


def is_batch(graph: Graph, mode: RuntimeExecutionMode) -> bool:
    """Whether the job runs in batch mode: asked for, or automatic with bounded sources only."""
    if mode is not RuntimeExecutionMode.AUTOMATIC:
        return mode is RuntimeExecutionMode.BATCH
    return not unbounded_sources(graph)


def unbounded_sources(graph: Graph) -> list[Node]:
    """The sources that never end."""
    return [n for n in graph.nodes.values() if isinstance(n.spec, SourceSpec) and not n.spec.bounded]
