"""Whether a job runs in epochs or continuously, and why."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.api.executor import JobSettings, PlannedMode, resolve_parallelism
from tidemark.api.graph import Graph
from tidemark.api.specs import FunctionSourceSpec, SinkSpec, SourceSpec
from tidemark.config import ExecutionMode, Options
from tidemark.errors import ConfigError
from tidemark.runtime.sinks.factory import wants_frame
from tidemark.runtime.sources.enumerators import can_run_continuously

__all__ = ["ModeChoice", "choose_mode", "might_be_continuous", "number_of_tasks", "planned_mode"]


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """How a job runs."""

    continuous: bool
    reason: str
    """Why, for people."""


def choose_mode(
    graph: Graph, settings: JobSettings, *, cores: int | None = None, obstacle: str | None = None
) -> ModeChoice:
    """How a job runs.

    Args:
        graph: The job.
        settings: With `execution.mode`.
        cores: How many tasks can run at the same time; None: any number, or nobody knows.
        obstacle: What else is in the way, if anything.

    Raises:
        ConfigError: It is to run continuously but cannot; names what is in the way.
    """
    wanted = settings.configuration.get(Options.EXECUTION_MODE)
    if wanted is ExecutionMode.EPOCHS:
        return ModeChoice(False, "execution.mode is EPOCHS")
    if cores is not None and wanted is ExecutionMode.AUTO:
        # Whoever did not ask for it does not want other Spark jobs to wait until this one ends.
        cores = max(0, cores - 1)
    obstacle = _obstacle(graph, settings, cores) or obstacle
    if obstacle is None:
        return ModeChoice(True, f"execution.mode is {wanted.name}, and every source and sink can")
    if wanted is ExecutionMode.CONTINUOUS:
        raise ConfigError(
            f"The job cannot run continuously: {obstacle}. Set {Options.EXECUTION_MODE.key} to auto or epochs.",
            key=Options.EXECUTION_MODE.key,
        )
    return ModeChoice(False, obstacle)


def planned_mode(
    graph: Graph, settings: JobSettings, *, cores: int | None = None, obstacle: str | None = None
) -> PlannedMode:
    """The same for a plan, where a job that would be refused is no error."""
    try:
        choice = choose_mode(graph, settings, cores=cores, obstacle=obstacle)
    except ConfigError as exc:
        return PlannedMode(None, str(exc))
    return PlannedMode("continuous" if choice.continuous else "epochs", choice.reason)


def might_be_continuous(graph: Graph, settings: JobSettings) -> bool:
    """Whether the job runs continuously if there are cores enough."""
    wanted = settings.configuration.get(Options.EXECUTION_MODE)
    return wanted is not ExecutionMode.EPOCHS and _obstacle(graph, settings, None) is None


def number_of_tasks(graph: Graph, settings: JobSettings) -> int:
    """How many tasks a continuous job has: as many as its widest source has subtasks."""
    sources = [node for node in graph.nodes.values() if isinstance(node.spec, SourceSpec)]
    return max([1, *(resolve_parallelism(node, settings) for node in sources)])


def _obstacle(graph: Graph, settings: JobSettings, cores: int | None) -> str | None:
    if settings.batch_mode:
        return "it runs in BATCH mode, which has no barriers"
    for node in graph.nodes.values():
        spec = node.spec
        if isinstance(spec, SinkSpec) and wants_frame(spec):
            return f"sink '{node.name}' wants a DataFrame for each epoch"
        if isinstance(spec, SourceSpec) and not (
            isinstance(spec, FunctionSourceSpec) or can_run_continuously(spec)
        ):
            return f"source '{node.name}' is read by Spark, epoch by epoch"
    tasks = number_of_tasks(graph, settings)
    if cores is not None and tasks > cores:
        return f"it needs {tasks} cores for its tasks for as long as it runs, and {cores} can be had"
    return None
