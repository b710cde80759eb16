"""Runs a reader function over one split: restore the range into a store, then visit its keys or windows.

The same code runs in a Spark task and, for `execution.target: local`, in this process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import cloudpickle

from tidemark.api.state_backends import StateBackend
from tidemark.api.windows.assigners import MergingWindowAssigner, WindowAssigner
from tidemark.api.windows.window import Window
from tidemark.checkpoint.storage.base import Storage
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.merging_windows import MERGING_WINDOWS
from tidemark.operators.runtime_context import KeyedStateAccess, OperatorRuntimeContext
from tidemark.plan.vertex import SubtaskInfo
from tidemark.state.backend import NO_KEY, KeyedStateBackend
from tidemark.state.canonical import StateSerializers, read_rows
from tidemark.state.descriptors import StateDescriptor, StateKind
from tidemark.state.immutable import immutable_state
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.namespace import VOID, Namespace, NamespaceKind
from tidemark.state.primitives import State
from tidemark.state.serializers.base import TypeSerializer
from tidemark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from tidemark.state_processor.functions import KeyedStateReaderFunction, WindowReaderFunction
from tidemark.state_processor.input_splits import InputSplit
from tidemark.state_processor.tables import canonical_tables, restored_backend

__all__ = ["RangeRead", "WindowContents"]

_CHUNK = 1024
"""Keys whose state is fetched together."""

_REFUSAL = (
    "State is read-only here: a reader function looks at a savepoint and cannot change it. Write a new one with "
    "SavepointWriter."
)

Timers = dict[Any, dict[Namespace, set[int]]]


@dataclass(frozen=True, slots=True)
class WindowContents:
    """How the windows of a window operator are read."""

    assigner: WindowAssigner[Any, Any]
    descriptor: StateDescriptor

    @property
    def namespace(self) -> NamespaceKind:
        """How windows are identified."""
        return self.assigner.namespace_kind()


@dataclass(frozen=True, slots=True)
class RangeRead:
    """One read of one operator; plain data and the user's function."""

    name: str
    uid: str
    function: bytes
    """The user's function, pickled: every range gets a fresh one."""
    key: TypeSerializer[Any]
    parallelism: int
    backend: StateBackend | None = None
    windows: WindowContents | None = None

    def run(self, index: int, split: InputSplit, storage: Storage | None = None) -> Iterator[list[Any]]:
        """What the function emits for the keys of a split, in lists of some length."""
        storage = storage or FileSystemStorage()
        function = cloudpickle.loads(self.function)
        info = SubtaskInfo(self.name, self.uid, index, self.parallelism, split.max_parallelism)
        with restored_backend(split, storage, self.key, self.backend) as backend:
            states = _States(backend)
            context = OperatorRuntimeContext(info, MetricRegistry().group(self.uid), states.lookup)
            function.set_runtime_context(context)
            timers = _read_timers(split, storage, self.key)
            function.open(context)
            try:
                if self.windows is None:
                    yield from _read_keys(function, backend, states, timers)
                else:
                    yield from self._read_windows(function, backend, states, timers, split, storage)
            finally:
                backend.context.token = NO_KEY
                function.close()

    def _read_windows(
        self,
        function: WindowReaderFunction,
        backend: KeyedStateBackend,
        states: _States,
        timers: dict[str, Timers],
        split: InputSplit,
        storage: Storage,
    ) -> Iterator[list[Any]]:
        windows = self.windows
        assert windows is not None
        contents: Any = backend.state(windows.descriptor, windows.namespace)
        merging: Any = None
        if isinstance(windows.assigner, MergingWindowAssigner):
            merging = backend.state(MERGING_WINDOWS)
        context = _WindowContext(states, timers, windows)
        pairs = _window_pairs(split, storage, windows, self.key)
        while chunk := list(islice(pairs, _CHUNK)):
            emitted: list[Any] = []
            with _batch(backend, [token for token, _ in chunk]):
                for token, namespace in chunk:
                    backend.context.token = token
                    contents.set_namespace(namespace)
                    held = contents.get()
                    if held is None:
                        continue
                    elements = list(held) if windows.descriptor.kind is StateKind.LIST else [held]
                    context.token = token
                    context.current = _actual(windows.assigner, merging, namespace)
                    result = function.read_window(backend.key_of(token), context, elements)
                    if result is not None:
                        emitted.extend(result)
            yield emitted


class _States:
    """Hands out read-only handles and remembers the names of ordinary states."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.names: list[str] = []

    def lookup(self, descriptor: StateDescriptor) -> State:
        """Read-only handle of a state without windows."""
        handle = self.backend.state(descriptor)
        if descriptor.name not in self.names:
            self.names.append(descriptor.name)
        return immutable_state(descriptor.kind, handle, _REFUSAL)

    def in_window(self, descriptor: StateDescriptor, kind: NamespaceKind, namespace: Namespace) -> State:
        """Read-only handle of a state in one window."""
        handle: Any = self.backend.state(descriptor, kind)
        handle.set_namespace(namespace)
        return immutable_state(descriptor.kind, handle, _REFUSAL)


class _KeyContext(KeyedStateReaderFunction.Context):
    def __init__(self, timers: dict[str, Timers]) -> None:
        self._timers = timers
        self.token: Any = NO_KEY

    def registered_event_time_timers(self) -> set[int]:
        return self._of(EVENT_TIMERS)

    def registered_processing_time_timers(self) -> set[int]:
        return self._of(PROCESSING_TIMERS)

    def _of(self, domain: str) -> set[int]:
        by_namespace = self._timers.get(domain, {}).get(self.token, {})
        return set(by_namespace.get(self._namespace(), ()))

    def _namespace(self) -> Namespace:
        return VOID


class _WindowContext(_KeyContext, WindowReaderFunction.Context):
    def __init__(self, states: _States, timers: dict[str, Timers], windows: WindowContents) -> None:
        super().__init__(timers)
        self._states = states
        self._kind = windows.namespace
        self._global = KeyedStateAccess(states.lookup)
        self._own = KeyedStateAccess(self.trigger_state)
        self.current: Window

    def window(self) -> Window:
        return self.current

    def _namespace(self) -> Namespace:
        # Timers carry the window itself, content may lie under the window it was merged from.
        return self.current.to_namespace()

    def trigger_state(self, descriptor: StateDescriptor) -> Any:
        return self._states.in_window(descriptor, self._kind, self.current.to_namespace())

    def window_state(self) -> KeyedStateAccess:
        return self._own

    def global_state(self) -> KeyedStateAccess:
        return self._global


def _read_keys(
    function: KeyedStateReaderFunction,
    backend: KeyedStateBackend,
    states: _States,
    timers: dict[str, Timers],
) -> Iterator[list[Any]]:
    context = _KeyContext(timers)
    if states.names:
        tokens = backend.iterate_tokens(list(states.names))
    else:
        tokens = iter(dict.fromkeys(token for by_token in timers.values() for token in by_token))
    while chunk := list(islice(tokens, _CHUNK)):
        emitted: list[Any] = []
        with _batch(backend, chunk):
            for token in chunk:
                backend.context.token = context.token = token
                result = function.read_key(backend.key_of(token), context)
                if result is not None:
                    emitted.extend(result)
        yield emitted


@contextmanager
def _batch(backend: KeyedStateBackend, tokens: list[Any]) -> Iterator[None]:
    backend.start_batch(tokens)
    try:
        yield
    finally:
        backend.context.token = NO_KEY
        backend.end_batch()


def _read_timers(split: InputSplit, storage: Storage, key: TypeSerializer[Any]) -> dict[str, Timers]:
    """Domain -> token -> namespace -> times."""
    timers: dict[str, Timers] = {}
    for domain in (EVENT_TIMERS, PROCESSING_TIMERS):
        found: Timers = defaultdict(dict)
        with canonical_tables(split.only(StateKind.TIMER, domain), storage) as tables:
            for meta, batches in tables:
                for batch in batches:
                    rows = read_rows(meta, StateSerializers(key), batch)
                    namespaces = rows.namespaces or [VOID] * len(rows.tokens)
                    for token, namespace, time in zip(rows.tokens, namespaces, rows.values, strict=True):
                        found[token].setdefault(namespace, set()).add(time)
        timers[domain] = dict(found)
    return timers


def _window_pairs(
    split: InputSplit, storage: Storage, windows: WindowContents, key: TypeSerializer[Any]
) -> Iterator[tuple[Any, Namespace]]:
    """Key token and namespace of every window that has content."""
    name = windows.descriptor.name
    columns = windows.namespace.columns
    tokens = KeyTokens(key)
    only = split.only(windows.descriptor.kind, name)
    with canonical_tables(only, storage, lambda meta: meta.name == name) as tables:
        for _meta, batches in tables:
            for batch in batches:
                found = tokens.of_stored(key.from_arrow(batch.column("key")))
                parts = [batch.column(column).to_pylist() for column in columns]
                yield from zip(found, zip(*parts, strict=True), strict=True)


def _actual(assigner: WindowAssigner[Any, Any], merging: Any, namespace: Namespace) -> Window:
    """The window whose content lies under `namespace`: merged windows point at the first of them."""
    if merging is not None:
        for numbers in merging.get():
            half = len(numbers) // 2
            if tuple(numbers[half:]) == namespace:
                namespace = tuple(numbers[:half])
                break
    window: Window = assigner.window_from_namespace(namespace)
    return window
