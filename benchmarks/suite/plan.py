"""Which cases a run of the suite measures, in which order, on which systems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from suite.worker import Case

PEERS = ("spark-pandas", "spark-row", "flink-thread", "flink-process", "bytewax")

# Rows that keep each system busy for some ten seconds or more; rates do not depend on them once it is warm.
ROWS = {
    "tidemark": 6_000_000,
    "spark-pandas": 500_000,
    "spark-row": 200_000,
    "flink-thread": 300_000,
    "flink-process": 60_000,
    "bytewax": 3_000_000,
}
QUICK_ROWS = {
    "tidemark": 4_000_000,
    "spark-pandas": 200_000,
    "spark-row": 50_000,
    "flink-thread": 100_000,
    "flink-process": 20_000,
    "bytewax": 1_000_000,
}
NEXMARK = {
    "q4": 2_000_000,
    "q5": 2_000_000,
    "q7": 2_000_000,
    "q8": 20_000_000,
    "q11": 2_000_000,
    "q12": 2_000_000,
    "q18": 2_000_000,
    "q20": 2_000_000,
}
"""Events per query; q8 reads eight in a hundred of them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A case under the headings of the report."""

    group: str
    label: str
    case: Case
    repeat: int = 0
    """Repetitions; 0: as many as the run has."""


def quick() -> list[Entry]:
    """The heart of the comparison; most telling cases first, as the time may run out."""
    heap, rocksdb = "10 k keys, uniform, heap", "10 k keys, uniform, rocksdb"

    def value(system: str, label: str) -> Entry:
        backend = "heap" if label == heap else "rocksdb"
        return Entry("value", label, Case(system, records=QUICK_ROWS[system], backend=backend))

    return [
        value("tidemark", heap),
        value("flink-thread", heap),
        value("spark-pandas", rocksdb),
        value("bytewax", heap),
        value("tidemark", rocksdb),
        value("flink-process", heap),
        value("spark-row", rocksdb),
        Entry("latency", "1,000 events/s", _latency("tidemark")),
    ]


def full() -> list[Entry]:
    """Every case of every system that can express it."""
    return [
        *_values(),
        *_kinds_of_state(),
        *_features(),
        *_pairs(),
        *_tuning(),
        *_operations(),
        *_nexmark(),
        *_growth(),
    ]


def _values() -> Iterator[Entry]:
    for keys, name in ((100, "100"), (10_000, "10 k"), (1_000_000, "1 M")):
        for kind in ("uniform", "zipf"):
            for backend in ("heap", "rocksdb"):
                for system in ("tidemark", *PEERS):
                    case = Case(system, records=_rows(system, keys), keys=keys, kind=kind, backend=backend)
                    # Spark has RocksDB only and Bytewax memory only; each is shown beside that of the others.
                    wrong = "heap" if system.startswith("spark") else "rocksdb" if system == "bytewax" else ""
                    if backend != wrong:
                        yield Entry("value", f"{name} keys, {kind}, {backend}", case)
    # Results by key instead of by record: see its worker.
    yield Entry("value", "10 k keys, uniform, heap", Case("pathway", records=1_000_000))


def _rows(system: str, keys: int) -> int:
    """Enough rows to touch a large part of the keys, where the system is fast enough for that."""
    if keys < 1_000_000:
        return ROWS[system]
    return {"tidemark": 2 * keys, "bytewax": 2 * keys}.get(system, 300_000)


def _kinds_of_state() -> Iterator[Entry]:
    for state in ("list", "map"):
        for system in ("tidemark", *(peer for peer in PEERS if peer != "bytewax")):
            backend = "rocksdb" if system.startswith("spark") else "heap"
            case = Case(system, state, ROWS[system], backend=backend)
            yield Entry("state", f"{state} state, 10 k keys", case)
        yield Entry(
            "state",
            f"{state} state, 10 k keys, rocksdb",
            Case("tidemark", state, ROWS["tidemark"], backend="rocksdb"),
        )


def _features() -> Iterator[Entry]:
    for ttl in (False, True):
        label = f"TTL {'on' if ttl else 'off'}"
        for backend in ("heap", "rocksdb"):
            case = Case("tidemark", records=ROWS["tidemark"], backend=backend, ttl=ttl)
            yield Entry("ttl", f"{label}, {backend}", case)
        yield Entry(
            "ttl",
            f"{label}, rocksdb",
            Case("spark-pandas", records=ROWS["spark-pandas"], backend="rocksdb", ttl=ttl),
        )
        yield Entry("ttl", f"{label}, heap", Case("flink-thread", records=ROWS["flink-thread"], ttl=ttl))
    for system in ("tidemark", "flink-thread", "flink-process"):
        rows = ROWS[system]
        yield Entry("window", "tumbling event-time window, 1 k keys", Case(system, "window", rows, 1_000))
        yield Entry("broadcast", "10 broadcast rules, 10 k keys", Case(system, "broadcast", rows))
    for interval in (0, 1_000):
        label = "checkpoint every second" if interval else "no checkpoints"
        for backend in ("heap", "rocksdb"):
            case = Case(
                "tidemark", records=6_000_000, keys=1_000_000, backend=backend, checkpoint_ms=interval
            )
            yield Entry("checkpoint", f"{label}, 1 M keys, {backend}", replace(case, epoch_rows=200_000))
        for system in ("flink-thread", "bytewax"):
            case = Case(system, records=ROWS[system], keys=1_000_000, checkpoint_ms=interval)
            yield Entry("checkpoint", f"{label}, 1 M keys, heap", case)


def _pairs() -> Iterator[Entry]:
    """What a feature costs; the machine may change its speed between two sessions, hardly between two turns."""
    for backend, rounds in (("heap", 5), ("rocksdb", 3)):
        ttl = Case("tidemark", "pair-ttl", ROWS["tidemark"], backend=backend, options={"rounds": 7})
        yield Entry("pairs", f"time-to-live, 10 k keys, {backend}", ttl, 1)
        checkpoint = replace(
            ttl, state="pair-checkpoint", keys=1_000_000, epoch_rows=200_000, options={"rounds": rounds}
        )
        yield Entry("pairs", f"checkpoint every second, 1 M keys, {backend}", checkpoint, 1)


def _tuning() -> Iterator[Entry]:
    """Settings of PyFlink's process mode that were tried; the suite uses the largest ones."""
    sizes = ("python.fn-execution.bundle.size", "python.state.cache-size")
    for bundle, cache in ((1_000, 1_000), (10_000, 10_000), (100_000, 1_000), (1_000_000, 100_000)):
        case = Case(
            "flink-process",
            records=ROWS["flink-process"],
            options=dict(zip(sizes, (bundle, cache), strict=True)),
        )
        yield Entry("tuning", f"bundle {bundle:,}, cache {cache:,}", case, 1)


def _latency(system: str) -> Case:
    # PyFlink has to catch up with what came while its functions were starting; half the time is for that.
    seconds = 80 if system.startswith("flink") else 25
    return Case(system, "latency", keys=1_000, options={"rate": 1_000, "seconds": seconds})


def _operations() -> Iterator[Entry]:
    for system in ("tidemark", "spark-pandas", "flink-thread", "flink-process"):
        yield Entry("latency", "1,000 events/s", _latency(system))
    for backend in ("heap", "rocksdb"):
        yield Entry(
            "recovery",
            f"a slot is killed, 100 k keys, {backend}",
            Case("tidemark", "recovery", keys=100_000, backend=backend),
        )
        yield Entry(
            "rescale",
            f"2 to 3 slots, 100 k keys, {backend}",
            Case("tidemark", "rescale", keys=100_000, backend=backend),
        )
        yield Entry(
            "memory", f"1 M keys, {backend}", Case("tidemark", "memory", keys=1_000_000, backend=backend), 1
        )


def _nexmark() -> Iterator[Entry]:
    for query, events in NEXMARK.items():
        for backend in ("heap", "rocksdb"):
            case = Case("tidemark", f"nexmark-{query}", events, backend=backend)
            yield Entry("nexmark", f"{query}, {backend}", case)


def _growth() -> Iterator[Entry]:
    for power in range(2, 8):
        keys = 10**power
        for backend in ("heap", "rocksdb"):
            case = Case("tidemark", records=max(2_000_000, 2 * keys), keys=keys, backend=backend)
            yield Entry("growth-keys", f"{keys:,} keys, {backend}", case, 2 if power < 7 else 1)
    for slots in (1, 2):
        yield Entry("growth-slots", f"{slots} slots", Case("tidemark", records=ROWS["tidemark"], slots=slots))
    for epoch_rows in (500, 2_000, 10_000, 50_000, 200_000):
        # A fifth of the epochs warms up, and the JVM takes a number of jobs for that, however small they are.
        epochs = 40 if epoch_rows > 10_000 else 150
        case = Case("tidemark", records=epochs * epoch_rows, epoch_rows=epoch_rows)
        yield Entry("growth-epochs", f"epochs of {epoch_rows:,} rows", case)


PLANS = {"quick": quick, "full": full}
