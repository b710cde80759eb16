"""Benchmark of the state backends: what an access, a barrier and a snapshot cost. `make bench-state`.

Figures are medians of several rounds, in one process, without Spark. Costs per access and per record are CPU
time of the thread that works, so that a busy machine does not spoil them; pauses and snapshots are wall-clock
time. A "record" is what a slot does with one: it comes in an Arrow batch, a user function reads and updates a
`ValueState` through its handle and yields a result, and that leaves in an Arrow batch.
"""

from __future__ import annotations

import gc
import io
import itertools
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.clock import SystemClock
from tidemark.state.backend import NO_KEY, BackendParameters, KeyedStateBackend
from tidemark.state.descriptors import ValueStateDescriptor
from tidemark.state.serializers import serializer_for
from tidemark.state.snapshot import Increment
from tidemark.state.ttl import StateTtlConfig
from tidemark.types.typeinfo import Types

ROUNDS = 7
BATCH = 10_000
MANY = 1_000_000

ROW = struct.Struct(">HHq")
NUMBER = struct.Struct(">q")

ROWS: list[tuple[str, str, str, str]] = []


def report(what: str, figure: str, compared: str = "", verdict: bool | None = None) -> None:
    mark = "" if verdict is None else ("ok" if verdict else "MISSED")
    ROWS.append((what, figure, compared, mark))
    print(f"  {what:<62} {figure:>14}  {compared:<34} {mark}", flush=True)


def median(run: Callable[[], float], rounds: int = ROUNDS) -> float:
    gc.collect()
    return statistics.median([run() for _ in range(rounds)])


def backend(kind: str, directory: Path, **options: Any) -> KeyedStateBackend:
    parameters = BackendParameters(
        serializer_for(Types.LONG()), 128, (0, 127), SystemClock(), directory=directory, options=options
    )
    return HeapKeyedStateBackend(parameters) if kind == "heap" else RocksDBKeyedStateBackend(parameters)


def ttl_config() -> StateTtlConfig:
    return StateTtlConfig.new_builder(3_600_000).build()


def value_state(store: KeyedStateBackend, type_info: Any, ttl: bool = False) -> Any:
    descriptor = ValueStateDescriptor("v", type_info)
    if ttl:
        descriptor.enable_time_to_live(ttl_config())
    return store.state(descriptor)


def drive(store: KeyedStateBackend, state: Any, tokens: list[int], step: Callable[[Any], Any]) -> float:
    """One batch, value() and update() inline; seconds."""
    context = store.context
    value, update = state.value, state.update
    started = time.thread_time()
    store.start_batch(tokens)
    for token in tokens:
        context.token = token
        update(step(value()))
    context.token = NO_KEY
    store.end_batch()
    return time.thread_time() - started


def plus_one(value: Any) -> Any:
    return 1 if value is None else value + 1


def next_pair(value: Any) -> Any:
    return (1, "x") if value is None else (value[0] + 1, "x")


def bare_dict(tokens: list[int], step: Callable[[Any], Any]) -> Callable[[], float]:
    held: dict[int, Any] = {}

    def run() -> float:
        started = time.thread_time()
        for token in tokens:
            held[token] = step(held.get(token))
        return time.thread_time() - started

    return run


def heap_access(directory: Path) -> None:
    tokens = [i % 1000 for i in range(BATCH * 10)]
    for name, type_info, step in (
        ("LONG", Types.LONG(), plus_one),
        ("pickled", Types.PICKLED_BYTE_ARRAY(), next_pair),
    ):
        store = backend("heap", directory)
        state = value_state(store, type_info)
        bare = bare_dict(tokens, step)
        bare(), drive(store, state, tokens, step)
        base = median(bare) / len(tokens) * 1e6
        ours = median(lambda: drive(store, state, tokens, step)) / len(tokens) * 1e6  # noqa: B023
        report(
            f"heap value()+update(), {name}",
            f"{ours:.3f} us",
            f"bare dict {base:.3f} us, +{ours - base:.3f}",
            ours - base <= 0.5,
        )
        store.close()


class RawStore:
    """The same work on `rocksdict` directly: one get and one put per record, write-ahead log off."""

    def __init__(self, directory: Path, preload: int) -> None:
        import rocksdict

        from tidemark.backends.rocksdb.options import RocksDBOptions, native_options

        self._path = directory / "raw"
        self._db = rocksdict.Rdict(str(self._path), native_options(RocksDBOptions()))
        self._quick = rocksdict.WriteOptions()
        self._quick.disable_wal = True
        for at in range(0, preload, BATCH):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for token in range(at, at + BATCH):
                batch.put(ROW.pack(token % 128, 0, token), NUMBER.pack(token))
            self._db.write(batch, self._quick)

    def drive(self, tokens: list[int]) -> float:
        get, put, quick = self._db.get, self._db.put, self._quick
        key, pack, unpack = ROW.pack, NUMBER.pack, NUMBER.unpack
        started = time.thread_time()
        for token in tokens:
            row = key(token % 128, 0, token)
            raw = get(row)
            put(row, pack(1 if raw is None else unpack(raw)[0] + 1), quick)
        return time.thread_time() - started

    def close(self) -> None:
        self._db.close()
        shutil.rmtree(self._path)


def fill(store: KeyedStateBackend, state: Any, count: int) -> None:
    update, context = state.update, store.context
    for at in range(0, count, BATCH):
        store.start_batch()
        for token in range(at, at + BATCH):
            context.token = token
            update(token)
        context.token = NO_KEY
        store.end_batch()


def rocksdb_access(directory: Path) -> None:
    draw = random.Random(7)
    cases = {
        "10k keys, each once per batch": (
            BATCH,
            [draw.sample(range(BATCH), BATCH) for _ in range(ROUNDS + 1)],
        ),
        "1M keys, 10k distinct per batch": (
            MANY,
            [draw.sample(range(MANY), BATCH) for _ in range(ROUNDS + 1)],
        ),
        "1M keys, 1k distinct per batch of 10k": (
            MANY,
            [
                [draw.choice(few) for _ in range(BATCH)]
                for few in (draw.sample(range(MANY), 1000) for _ in range(ROUNDS + 1))
            ],
        ),
    }
    for name, (preload, batches) in cases.items():
        raw = RawStore(directory, preload)
        store = backend("rocksdb", directory)
        state = value_state(store, Types.LONG())
        fill(store, state, preload)
        # In turns, so that both meet the same neighbours on a busy machine.
        times = [(drive(store, state, tokens, plus_one), raw.drive(tokens)) for tokens in batches]
        ours, theirs = [statistics.median(column) / BATCH * 1e6 for column in zip(*times, strict=True)]
        store.close()
        raw.close()
        report(
            f"rocksdb value()+update(), {name}",
            f"{ours:.2f} us",
            f"raw get+put {theirs:.2f} us",
            ours <= theirs,
        )


def cuts(directory: Path) -> None:
    for kind, incremental, limit in (("heap", False, 50), ("rocksdb", False, 150), ("rocksdb", True, 150)):
        store = backend(kind, directory)
        state = value_state(store, Types.LONG())
        fill(store, state, MANY)
        pauses = []
        write = 0.0
        for round_ in range(3):
            drive(store, state, random.Random(round_).sample(range(MANY), 100_000), plus_one)
            started = time.perf_counter()
            cut = store.cut(incremental=Increment(round_ + 1) if incremental else None)
            pauses.append((time.perf_counter() - started) * 1e3)
            if round_ == 0 and not incremental:
                write = write_parquet(cut, directory)
            cut.release()
        label = f"{kind} cut of 1,000,000 keys" + (" (native, 100k dirty)" if incremental else "")
        report(label, f"{max(pauses):.1f} ms", f"limit {limit} ms, worst of 3", max(pauses) <= limit)
        if write:
            report(f"{kind} canonical snapshot of 1,000,000 keys to Parquet", f"{write:.2f} s")
        store.close()


def write_parquet(cut: Any, directory: Path) -> float:
    import pyarrow.parquet as pq

    started = time.perf_counter()
    for table in cut.tables():
        with pq.ParquetWriter(directory / "state.parquet", table.schema) as writer:
            for batch in table.batches():
                writer.write_batch(batch)
    return time.perf_counter() - started


def increments(directory: Path) -> None:
    """A heap whose checkpoints are incremental beside one whose are not, over the same records in turns."""
    stores = [backend("heap", directory, max_changes=100) for _ in range(2)]
    states = [value_state(store, Types.LONG()) for store in stores]
    for store, state in zip(stores, states, strict=True):
        fill(store, state, MANY)
    plain, chained = stores
    numbers = itertools.count(1)
    whole = write_changes(chained, next(numbers))
    draw = random.Random(3)
    for share in (0.01, 0.1):
        times, written = [], []
        for _ in range(3):
            few = draw.sample(range(MANY), round(MANY * share))
            for tokens in (few, few):
                times.append(
                    [
                        drive(*each, tokens, plus_one) / len(tokens) * 1e6
                        for each in zip(stores, states, strict=True)
                    ]
                )
            written.append(write_changes(chained, next(numbers)))
        for name, turn in (("first", times[::2]), ("second", times[1::2])):
            full, changed = [statistics.median(column) for column in zip(*turn, strict=True)]
            report(
                f"heap value()+update(), {name} access to {share:.0%} of 1M keys, incremental",
                f"{changed:.2f} us",
                f"full checkpoints {full:.2f} us",
            )
        cpu, size = [statistics.median(column) for column in zip(*written, strict=True)]
        report(
            f"heap incremental checkpoint, {share:.0%} of 1M keys changed",
            f"{cpu * 1e3:.0f} ms",
            f"{size / 1e3:.0f} kB; whole {whole[0] * 1e3:.0f} ms, {whole[1] / 1e3:.0f} kB",
        )
    plain.close()
    chained.close()


def write_changes(store: KeyedStateBackend, number: int) -> tuple[float, int]:
    """An incremental checkpoint that completes, as the one before it did: CPU seconds of writing it, and its bytes."""
    cut = store.cut(incremental=Increment(number, number - 1 or None))
    assert cut.native is not None
    files = [io.BytesIO() for content in cut.native.files.values() if content is not None]
    started = time.thread_time()
    for content, file in zip(filter(None, cut.native.files.values()), files, strict=True):
        assert callable(content)
        content(file)
    took = time.thread_time() - started
    cut.release()
    store.notify_checkpoint_complete(number)
    return took, sum(len(file.getvalue()) for file in files)


class Counter:
    """A user function as small as they come."""

    def __init__(self, state: Any) -> None:
        self.state = state

    def process_element(self, record: tuple[int, int], ctx: Any) -> Any:
        count = (self.state.value() or 0) + record[1]
        self.state.update(count)
        yield record[0], count


def per_record(store: KeyedStateBackend, state: Any, batch: pa.RecordBatch) -> float:
    """One batch as a slot treats it: Arrow in, a call of the function per record, Arrow out."""
    function = Counter(state).process_element
    context = store.context
    output: list[Any] = []
    started = time.thread_time()
    tokens = batch.column(0).to_numpy().tolist()
    records = list(zip(tokens, batch.column(1).to_numpy().tolist(), strict=True))
    store.start_batch(tokens)
    for token, record in zip(tokens, records, strict=True):
        context.token = token
        output.extend(function(record, context))
    context.token = NO_KEY
    store.end_batch()
    keys, counts = zip(*output, strict=True)
    pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(counts, pa.int64())], ["key", "count"])
    return time.thread_time() - started


def ttl_cost(directory: Path) -> None:
    tokens = [i * 7919 % 1000 for i in range(BATCH)]
    batch = pa.RecordBatch.from_pydict({"key": tokens, "value": [1] * len(tokens)})
    for kind in ("heap", "rocksdb"):
        stores = []
        for ttl in (False, True):
            store = backend(kind, directory / f"ttl-{ttl}")
            stores.append((store, value_state(store, Types.LONG(), ttl)))
        times: tuple[list[float], list[float]] = ([], [])
        # Many short rounds in turns: the fastest of each are those no neighbour disturbed.
        for _ in range(100):
            for collected, (store, state) in zip(times, stores, strict=True):
                collected.append(per_record(store, state, batch))
        without, with_ttl = [min(collected) / len(tokens) * 1e6 for collected in times]
        ratio = with_ttl / without - 1
        report(
            f"{kind} record with TTL",
            f"{with_ttl:.3f} us",
            f"without {without:.3f} us, {ratio:+.0%}",
            ratio <= 0.10,
        )
        for store, _ in stores:
            store.close()


def main() -> int:
    directory = Path(tempfile.mkdtemp(prefix="bench-state-"))
    started = time.perf_counter()
    try:
        print("State backends (medians; lower is better)")
        heap_access(directory)
        rocksdb_access(directory)
        cuts(directory)
        increments(directory)
        ttl_cost(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    missed = [row[0] for row in ROWS if row[3] == "MISSED"]
    print(
        f"{len(ROWS)} figures in {time.perf_counter() - started:.0f} s; missed: {', '.join(missed) or 'none'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
