"""Random batches of many keys on the RocksDB backend, with restores and compactions in between."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaign import examples

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend, scope
from tidemark.clock import ManualClock
from tidemark.state.backend import NO_KEY, BackendParameters
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.serializers import serializer_for
from tidemark.types.typeinfo import Types

keys = st.sampled_from(["", "a", "ab", "b", "é"])
numbers = st.integers(0, 5)
accesses = st.one_of(
    st.tuples(st.just("add"), keys, numbers),
    st.tuples(st.just("update"), keys, st.one_of(st.none(), numbers)),
    st.tuples(st.just("append"), keys, numbers),
    st.tuples(st.just("replace"), keys, st.lists(numbers, max_size=2)),
    st.tuples(st.just("put"), keys, numbers),
    st.tuples(st.just("remove"), keys, numbers),
    st.tuples(st.just("clear"), keys, st.just(0)),
    st.tuples(st.just("read"), keys, st.just(0)),
)
steps = st.one_of(
    st.tuples(st.just("batch"), st.booleans(), st.lists(accesses, min_size=1, max_size=12)),
    st.tuples(st.sampled_from(["native", "canonical", "rescale", "compact"]), st.just(False), st.just([])),
)


class Machine:
    """The backends under test (one, or two after rescaling out and in) and a model of dictionaries."""

    def __init__(self, directory: Path, cache: int) -> None:
        self._directory = directory
        self._cache = cache
        self._made: list[RocksDBKeyedStateBackend] = []
        self.model: dict[str, tuple[int | None, list[int], dict[int, int]]] = {}
        self._attach(self._open((0, 127)))

    def _open(self, key_groups: tuple[int, int]) -> RocksDBKeyedStateBackend:
        parameters = BackendParameters(
            serializer_for(Types.STRING()),
            128,
            key_groups,
            ManualClock(),
            directory=self._directory,
            options={"read_cache_size": self._cache},
        )
        self._made.append(RocksDBKeyedStateBackend(parameters))
        return self._made[-1]

    def _attach(self, backend: RocksDBKeyedStateBackend) -> None:
        self.backend = backend
        self.value: Any = backend.state(ValueStateDescriptor("v", Types.LONG()))
        self.items: Any = backend.state(ListStateDescriptor("l", Types.LONG()))
        self.pairs: Any = backend.state(MapStateDescriptor("m", Types.LONG(), Types.LONG()))

    def batch(self, announced: bool, accesses: list[tuple[str, str, Any]]) -> None:
        backend = self.backend
        backend.start_batch([key for _, key, _ in accesses] if announced else None)
        for name, key, argument in accesses:
            backend.context.token = key
            held, listed, mapped = self.model.get(key, (None, [], {}))
            if name == "add":
                self.value.update((self.value.value() or 0) + argument)
                held = (held or 0) + argument
            elif name == "update":
                self.value.update(argument)
                held = argument
            elif name == "append":
                self.items.add(argument)
                listed = [*listed, argument]
            elif name == "replace":
                self.items.update(argument)
                listed = argument
            elif name == "put":
                self.pairs.put(argument, argument)
                mapped = {**mapped, argument: argument}
            elif name == "remove":
                self.pairs.remove(argument)
                mapped = {k: v for k, v in mapped.items() if k != argument}
            elif name == "clear":
                for state in (self.value, self.items, self.pairs):
                    state.clear()
                held, listed, mapped = None, [], {}
            self.model[key] = (held, listed, mapped)
            if name == "read":
                assert self.value.value() == held
                assert list(self.items.get()) == listed
                assert dict(self.pairs.items()) == mapped
        backend.context.token = NO_KEY
        backend.end_batch()

    def native(self) -> None:
        cut = self.backend.cut(incremental=True)
        self._attach(self._restored((0, 127), cut))
        cut.release()

    def rescale(self) -> None:
        cut = self.backend.cut(incremental=True)
        halves = [self._restored(groups, cut) for groups in ((0, 50), (51, 127))]
        joined = self._open((0, 127))
        for half in halves:
            part = half.cut(incremental=True)
            joined.restore_native(part.native.kind, part.native.files, part.native.extra, part.metas)  # type: ignore[union-attr]
            part.release()
        self._attach(joined)

    def _restored(self, key_groups: tuple[int, int], cut: Any) -> RocksDBKeyedStateBackend:
        backend = self._open(key_groups)
        backend.restore_native(cut.native.kind, cut.native.files, cut.native.extra, cut.metas)
        return backend

    def canonical(self) -> None:
        cut = self.backend.cut()
        backend = self._open((0, 127))
        for table in cut.tables():
            backend.restore_table(table.meta, table.batches())
        cut.release()
        self._attach(backend)

    def compact(self) -> None:
        self.backend.compact()

    def check(self) -> None:
        for key, (held, listed, mapped) in self.model.items():
            assert self.backend.query("v", key) == (held is not None, held)
            assert self.backend.query("l", key) == (bool(listed), listed or None)
            assert self.backend.query("m", key) == (bool(mapped), mapped or None)
        assert sorted(self.backend.keys("v")) == sorted(
            k for k, unit in self.model.items() if unit[0] is not None
        )
        assert self.backend.num_entries("m") == sum(len(unit[2]) for unit in self.model.values())

    def close(self) -> None:
        for backend in self._made:
            backend.close()


@pytest.mark.parametrize("cache", [0, 2000, 1 << 20])
@settings(max_examples=examples(10))
@given(program=st.lists(steps, min_size=1, max_size=12))
def test_batches_of_many_keys_agree_with_dictionaries(cache: int, program: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        # Small limits, so that spilling and writing in pieces happen all the time.
        patch.setattr(scope, "_SPILL_AFTER", 4)
        patch.setattr(scope, "_WRITE_CHUNK", 3)
        patch.setattr(scope, "_FEW_ROWS", 2)
        machine = Machine(Path(directory), cache)
        try:
            for name, announced, accesses in program:
                if name == "batch":
                    machine.batch(announced, accesses)
                else:
                    restore: Callable[[], None] = getattr(machine, name)
                    restore()
                machine.check()
        finally:
            machine.close()
