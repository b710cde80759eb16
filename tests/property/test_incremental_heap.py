"""Random programs on incremental checkpoints of the heap: what completes is whole, whatever was aborted in between."""

from __future__ import annotations

import copy
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.campaign import examples, seeds
from tests.chained_heap import ChainedHeapBackend, write_files

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.state.backend import KeyedStateBackend
from tidemark.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidemark.state.key_groups import compute_key_group_range_for_operator_index
from tidemark.state.namespace import NamespaceKind
from tidemark.state.snapshot import Increment, KeyedCut
from tidemark.testing.backend_driver import BackendDriver, as_key
from tidemark.testing.backend_model import Step, programs, run_program
from tidemark.types.typeinfo import Types


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=examples(40))
@given(program=programs())
def test_chains_agree_with_dictionaries(ttl: bool, program: list[Step]) -> None:
    """All kinds of state, values changed in place, cuts read late and in any order."""
    directory = Path(tempfile.mkdtemp())
    try:
        run_program(BackendDriver(ChainedHeapBackend, directory), program, ttl)
    finally:
        shutil.rmtree(directory)


_WEIGHTS = {
    **dict.fromkeys(["value", "map", "list", "window", "column"], 6),
    "drop": 20,
    "cut": 10,
    "complete": 8,
    "abort": 3,
    "savepoint": 1,
    "erase": 1,
    "sweep": 2,
    "restore": 1,
}


@pytest.mark.parametrize("seed", seeds(15))
def test_what_completes_is_whole(seed: int, tmp_path: Path) -> None:
    """Files that no retained or pending checkpoint names are deleted at once, as the registry of shared files does."""
    chance = random.Random(seed)
    job = _Job(tmp_path, chance.randrange(5))
    for name in chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=250):
        job.step(name, chance.randrange(13), chance.randrange(4))
    job.step("cut", 0, 0)
    job.step("complete", len(job.pending), 0)


@dataclass
class _Pending:
    number: int
    base: int | None
    cut: KeyedCut
    model: dict[tuple[str, Any], Any]


class _Job:
    """One subtask, its checkpoints and a dictionary that says what it should hold."""

    def __init__(self, directory: Path, most: int) -> None:
        self.directory = directory
        self.pending: list[_Pending] = []
        self._most = most
        self._model: dict[tuple[str, Any], Any] = {}
        self._driver = BackendDriver(self._create, directory)
        self._numbers = 0
        self._begin([])

    def _create(self, parameters: Any) -> KeyedStateBackend:
        parameters.options["max_changes"] = self._most
        return HeapKeyedStateBackend(parameters)

    def _begin(self, restored: list[tuple[str, dict[str, Path], bytes, Any]]) -> None:
        self._backend = self._driver.open()
        for each in restored:
            self._backend.restore_native(*each)
        self._states = _register(self._backend)
        self.pending = []
        self._files: dict[int, dict[str, Path]] = {}
        self._completed: tuple[int, dict[str, Path], KeyedCut, dict[tuple[str, Any], Any]] | None = None

    def step(self, name: str, key: int, number: int) -> None:
        if name in self._states:
            self._write(name, key, number)
        elif name == "drop":
            self._drop(list(self._states)[(key + number) % len(self._states)], key)
        else:
            getattr(self, f"_{name}")(key, number)

    def _write(self, name: str, key: int, number: int) -> None:
        if name == "column":
            self._backend.start_batch()
            keys = self._backend.column_keys(pa.array([key, key + 1]))
            self._states[name].write(keys, [number, number])
            self._backend.end_batch()
            self._model[name, key] = self._model[name, key + 1] = number
            return
        window = (number,) if name == "window" else None
        with as_key(self._backend, key, window, self._states[name]):
            if name == "map":
                self._states[name].put(f"item {number}", number)
                held = self._model.setdefault((name, key), {})
                held[f"item {number}"] = number
            elif name == "list":
                self._states[name].add(number)
                self._model.setdefault((name, key), []).append(number)
            else:
                self._states[name].update(number)
                self._model[name, (key, *window) if window else key] = number

    def _drop(self, name: str, key: int) -> None:
        if name == "column":
            self._backend.start_batch()
            keys = self._backend.column_keys(pa.array([key]))
            self._states[name].clear(keys)
            self._backend.end_batch()
        else:
            with as_key(self._backend, key, (1,) if name == "window" else None, self._states[name]):
                self._states[name].clear()
        self._model.pop((name, (key, 1) if name == "window" else key), None)

    def _cut(self, _key: int, _number: int) -> None:
        if len(self.pending) == 3:
            return
        self._numbers += 1
        base = self._completed[0] if self._completed else None
        cut = self._backend.cut(incremental=Increment(self._numbers, base))
        self.pending.append(_Pending(self._numbers, base, cut, copy.deepcopy(self._model)))

    def _complete(self, key: int, _number: int) -> None:
        """One of the pending ones is written and completes, which subsumes those before it."""
        if not self.pending:
            return
        at = min(key, len(self.pending) - 1)
        done, older = self.pending[at], self.pending[:at]
        for each in older:
            each.cut.release()
        self.pending = self.pending[at + 1 :]
        known = {} if done.base is None else self._files[done.base]
        files = write_files(done.cut, known, self.directory / str(done.number))
        done.cut.release()
        assert len(files) <= len(self._states) * (self._most + 1)
        self._completed = done.number, files, done.cut, done.model
        self._files[done.number] = files
        self._backend.notify_checkpoint_complete(done.number)
        # Those in the making may refer to files of their base.
        needed = {done.number, *[each.base for each in self.pending]}
        self._files = {number: names for number, names in self._files.items() if number in needed}
        kept = {path for names in self._files.values() for path in names.values()}
        for path in self.directory.rglob("*.parquet"):
            if path not in kept:
                path.unlink()
        _compare(self._restored(1), done.model)

    def _abort(self, key: int, _number: int) -> None:
        if self.pending:
            self.pending.pop(key % len(self.pending)).cut.release()

    def _savepoint(self, _key: int, _number: int) -> None:
        cut = self._backend.cut()
        content = [(table.meta, list(table.batches())) for table in cut.tables()]
        cut.release()
        _compare([self._driver.open(content=content)], self._model)

    def _erase(self, key: int, _number: int) -> None:
        self._backend.erase(key)
        self._model = {
            at: held for at, held in self._model.items() if (at[1][0] if at[0] == "window" else at[1]) != key
        }

    def _sweep(self, _key: int, _number: int) -> None:
        """Give up the rows of keys without a value, as happens when there are many."""
        columns = self._backend._columns  # type: ignore[attr-defined]
        columns._looked_at = dict.fromkeys(columns._looked_at, 0)
        self._backend.start_batch()
        self._backend.column_keys(pa.array([99]))
        self._backend.end_batch()

    def _restore(self, _key: int, parallelism: int) -> None:
        """The attempt fails; the next one begins where the newest checkpoint was, whoever looked at it meanwhile."""
        for each in self.pending:
            each.cut.release()
        if self._completed is None:
            self._model = {}
            self._begin([])
            return
        _, files, cut, model = self._completed
        _compare(self._restored(1 + parallelism), model)
        assert cut.native is not None
        self._model = copy.deepcopy(model)
        self._begin([(cut.native.kind, files, cut.native.extra, cut.metas)])

    def _restored(self, parallelism: int) -> list[KeyedStateBackend]:
        assert self._completed is not None
        _, files, cut, _ = self._completed
        assert cut.native is not None
        backends = []
        for index in range(parallelism):
            groups = compute_key_group_range_for_operator_index(128, parallelism, index)
            backends.append(self._driver.open(key_groups=groups))
            backends[-1].restore_native(cut.native.kind, files, cut.native.extra, cut.metas)
        return backends


def _register(backend: KeyedStateBackend) -> dict[str, Any]:
    return {
        "value": backend.state(ValueStateDescriptor("value", Types.LONG())),
        "map": backend.state(MapStateDescriptor("map", Types.STRING(), Types.LONG())),
        "list": backend.state(ListStateDescriptor("list", Types.LONG())),
        "window": backend.state(ValueStateDescriptor("window", Types.LONG()), NamespaceKind.SINGLE),
        "column": backend.column_state(ValueStateDescriptor("column", Types.LONG())),
    }


def _compare(backends: list[KeyedStateBackend], model: dict[tuple[str, Any], Any]) -> None:
    found: dict[tuple[str, Any], Any] = {}
    for backend in backends:
        states = _register(backend)
        for name in states:
            if name == "window":
                for number in range(4):
                    for key in backend.keys(name, (number,)):
                        assert (name, (key, number)) not in found
                        found[name, (key, number)] = backend.query(name, key, (number,))[1]
                continue
            for key in backend.keys(name):
                assert (name, key) not in found
                found[name, key] = backend.query(name, key)[1]
        backend.close()
    assert found == model
