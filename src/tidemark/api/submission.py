"""The last look at a job before it runs: settle how edges ship, and refuse what cannot work."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace

from tidemark.api.executor import (
    JobSettings,
    explicit_max_parallelism,
    resolve_parallelism,
    unbounded_sources,
)
from tidemark.api.functions import CheckpointedFunction, Function, ListCheckpointed
from tidemark.api.graph import Edge, Graph, Node, Ship
from tidemark.api.specs import (
    BatchSpec,
    CollectSinkSpec,
    FunctionSinkSpec,
    FunctionSourceSpec,
    FunctionSpec,
    IterationHeadSpec,
    OperatorSpec,
    QueryableSpec,
    SinkSpec,
    SocketSourceSpec,
    TimestampsSpec,
)
from tidemark.config.options import set_without_effect
from tidemark.config.spelling import suspicious_keys, suspicious_variables
from tidemark.errors import ConfigError, IllegalStateError, UnsupportedOperationException

__all__ = ["SubmissionRules", "prepare", "settle_edges"]

_LOG = logging.getLogger(__name__)
_NAMED = 10
"""How many operators a warning names."""


@dataclass(frozen=True, slots=True)
class SubmissionRules:
    """Settings that only decide whether a job is accepted."""

    checkpointing_asked: bool = False
    """Whether periodic checkpoints are on, whatever the runtime mode."""
    force_checkpointing: bool = False
    auto_generated_uids: bool = True


def prepare(graph: Graph, settings: JobSettings, rules: SubmissionRules) -> Graph:
    """The graph to run.

    Raises:
        ConfigError: Wrong parallelism, duplicate uids, or an unbounded source in batch mode.
        IllegalStateError: No sinks, an open loop, missing uids, or a queryable name used twice.
        UnsupportedOperationException: An iteration with checkpointing that was not forced.
    """
    if not graph.nodes:
        raise IllegalStateError(
            "There is nothing to execute: no sink was added since the last execute(). Call print(), "
            "add_sink(), sink_to() or another sink method first."
        )
    settled = settle_edges(graph, settings)
    _check_uids(settled, rules)
    _check_parallelism(settled, settings)
    _check_iterations(settled, settings, rules)
    _check_queryable_names(settled)
    if settings.batch_mode:
        _check_batch(settled)
    if settings.checkpointing.enabled:
        _warn_about_sources(settled)
        _warn_about_upgrades(settled)
    _warn_about_options(settings)
    return settled


def settle_edges(graph: Graph, settings: JobSettings) -> Graph:
    """A copy in which edges nobody partitioned rebalance where the parallelism changes."""

    def settled(edge: Edge, node: Node) -> Edge:
        if edge.ship is not Ship.FORWARD or edge.explicit:
            return edge
        before = resolve_parallelism(graph.nodes[edge.source], settings)
        same = before == resolve_parallelism(node, settings)
        return edge if same else replace(edge, ship=Ship.REBALANCE)

    return Graph(
        {
            node.id: replace(node, inputs=[settled(edge, node) for edge in node.inputs])
            for node in graph.nodes.values()
        }
    )


def _check_uids(graph: Graph, rules: SubmissionRules) -> None:
    counts = Counter(node.uid for node in graph.nodes.values() if node.uid is not None)
    for uid, count in counts.items():
        if count > 1:
            names = [node.name for node in graph.nodes.values() if node.uid == uid]
            raise ConfigError(f"The uid '{uid}' is used by {count} operators: {', '.join(names)}.")
    if rules.auto_generated_uids:
        return
    for node in graph.nodes.values():
        if node.uid is None and node.uid_hash is None:
            raise IllegalStateError(
                f"Automatic uids are disabled, but '{node.name}' has none. Call uid() on it."
            )


def _check_parallelism(graph: Graph, settings: JobSettings) -> None:
    for node in graph.nodes.values():
        parallelism = resolve_parallelism(node, settings)
        limit = explicit_max_parallelism(node, settings)
        if limit is not None and parallelism > limit:
            raise ConfigError(
                f"'{node.name}' has parallelism {parallelism}, more than its max parallelism {limit}."
            )
        for edge in node.inputs:
            source = graph.nodes[edge.source]
            before = resolve_parallelism(source, settings)
            if edge.explicit and edge.ship is Ship.FORWARD and before != parallelism:
                raise ConfigError(
                    f"forward() from '{source.name}' (parallelism {before}) to '{node.name}' "
                    f"(parallelism {parallelism}) needs equal parallelism."
                )


def _check_iterations(graph: Graph, settings: JobSettings, rules: SubmissionRules) -> None:
    for node in graph.nodes.values():
        if not isinstance(node.spec, IterationHeadSpec):
            continue
        if not node.spec.feedback:
            raise IllegalStateError("A loop begun with iterate() was never closed. Call close_with() on it.")
        for source_id, _tag in node.spec.feedback:
            source = graph.nodes[source_id]
            if resolve_parallelism(source, settings) != resolve_parallelism(node, settings):
                raise ConfigError(
                    f"The loop head and its feedback '{source.name}' must have the same parallelism."
                )
        if node.spec.max_iterations is not None:
            if not settings.batch_mode:
                raise UnsupportedOperationException(
                    "iterate(max_iterations=...) goes in rounds, which need BATCH mode: "
                    "env.set_runtime_mode(RuntimeExecutionMode.BATCH)."
                )
            continue
        if settings.batch_mode:
            raise UnsupportedOperationException(
                "A loop without rounds exists in STREAMING mode only; in BATCH mode call "
                "iterate(max_iterations=...)."
            )
        if rules.checkpointing_asked and not rules.force_checkpointing:
            raise UnsupportedOperationException(
                "Checkpointing is on, but records on the feedback edge of a loop are in no checkpoint. "
                "Accept losing them with enable_checkpointing(interval, mode, force=True), or switch it off."
            )


def _check_queryable_names(graph: Graph) -> None:
    seen: set[str] = set()
    for node in graph.nodes.values():
        if isinstance(node.spec, QueryableSpec):
            name = node.spec.query_name
            if name in seen:
                raise IllegalStateError(f"The queryable name '{name}' is used twice in this job.")
            seen.add(name)


def _check_batch(graph: Graph) -> None:
    unbounded = unbounded_sources(graph)
    if unbounded:
        raise ConfigError(
            f"BATCH mode needs bounded sources only; '{unbounded[0].name}' is unbounded. Use STREAMING."
        )


def _warn_about_sources(graph: Graph) -> None:
    for node in graph.nodes.values():
        if isinstance(node.spec, SocketSourceSpec):
            _LOG.warning(
                "Source '%s' reads a socket, which cannot be read again: after a failure, what came since the last "
                "checkpoint is lost.",
                node.name,
            )
        if not isinstance(node.spec, FunctionSourceSpec):
            continue
        if not _is_checkpointed(node.spec.function):
            _LOG.warning(
                "Source '%s' keeps no position in checkpoints: after a failure it starts from the beginning "
                "and elements are processed again. Make it a CheckpointedFunction.",
                node.name,
            )


def _warn_about_upgrades(graph: Graph) -> None:
    """Say once what is cheap to mend now and expensive when there are snapshots that somebody needs."""
    stateful = [node for node in graph.nodes.values() if _keeps_state(node)]
    nameless = [_called(node) for node in stateful if node.uid is None and node.uid_hash is None]
    untyped = [
        _called(node)
        for node in stateful
        if any(edge.ship is Ship.HASH and edge.key_type is None for edge in node.inputs)
    ]
    told = []
    if nameless:
        told.append(
            f"No uid: {_listed(nameless)}. Their state is found by their place in the program, so a snapshot no longer "
            'fits once anything upstream of them changes. Call uid("...") on each.'
        )
    if untyped:
        told.append(
            f"Keys without a type: {_listed(untyped)}. They are pickled: slower, unreadable in savepoints, and "
            "their class can be neither changed nor moved. Name it: key_by(selector, Types...)."
        )
    if told:
        _LOG.warning("Cheap to mend before the first snapshot you need. %s", " ".join(told))


def _keeps_state(node: Node) -> bool:
    """Whether snapshots may hold something of an operator or sink; sources, with nothing upstream, do not count."""
    match node.spec:
        case FunctionSpec(function=function, keyed=keyed):
            # A plain callable has no way to get at state.
            return (keyed and isinstance(function, Function)) or _is_checkpointed(function)
        case FunctionSinkSpec(function=function):
            return _is_checkpointed(function)
        case BatchSpec(keyed=keyed):
            return keyed
        case TimestampsSpec() | IterationHeadSpec() | CollectSinkSpec():
            return False
        case OperatorSpec():
            return True
        case SinkSpec() as sink:
            return sink.guarantee == "exactly-once"
    return False


def _is_checkpointed(function: object) -> bool:
    return isinstance(function, CheckpointedFunction | ListCheckpointed)


def _called(node: Node) -> str:
    """Its name, and the class of the user's function: most operators of a program have the names we gave them."""
    function = getattr(node.spec, "function", None)
    return (
        f"'{node.name}' ({type(function).__name__})" if isinstance(function, Function) else f"'{node.name}'"
    )


def _listed(names: list[str]) -> str:
    some = ", ".join(names[:_NAMED])
    return some if len(names) <= _NAMED else f"{some} and {len(names) - _NAMED} more"


def _warn_about_options(settings: JobSettings) -> None:
    idle = set_without_effect(settings.configuration)
    if idle:
        reasons = "; ".join(f"{option.key} ({option.ineffective})" for option in idle)
        _LOG.warning("Set, but without effect: %s.", reasons)
    for key, nearest in suspicious_keys(settings.configuration.key_set()).items():
        hint = f" Did you mean '{nearest}'?" if nearest else ""
        _LOG.warning("No option is called '%s'; it changes nothing.%s", key, hint)
    for name, meant in suspicious_variables().items():
        _LOG.warning("No option has the variable %s; it changes nothing. Did you mean %s?", name, meant)
