"""Worker of Bytewax: the running sum with `stateful_map`, as many processes as slots, state in memory.

Settings: batches of 10,000 numbers from a partitioned source, one partition per process; no recovery store unless the
case asks for checkpoints (then a local SQLite one with that epoch and backup interval). Keys are strings, as
Bytewax wants them. Steady state: time of the flow less that of the same flow over few rows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

from suite.work import Rows, is_correct
from suite.worker import Case, answer, timed

FEW = 1_000
BATCH = 10_000
MINIMUM_S = 1.0


class Numbers(StatefulSourcePartition[int, int]):
    """Every n-th batch of the numbers."""

    def __init__(self, first: int, last: int, resume: int | None) -> None:
        self._at, self._last = (first if resume is None else resume), last

    def next_batch(self) -> list[int]:
        if self._at >= self._last:
            raise StopIteration
        batch = list(range(self._at, min(self._at + BATCH, self._last)))
        self._at += len(batch)
        return batch

    def snapshot(self) -> int:
        return self._at


class NumberSource(FixedPartitionedSource[int, int]):
    def __init__(self, records: int, parts: int) -> None:
        self._records, self._parts = records, parts

    def list_parts(self) -> list[str]:
        return [str(part) for part in range(self._parts)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Numbers:
        part = int(for_part)
        edges = [self._records * at // self._parts for at in (part, part + 1)]
        return Numbers(edges[0], edges[1], resume_state)


class Lines(StatelessSinkPartition[tuple[str, int]]):
    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def write_batch(self, items: list[tuple[str, int]]) -> None:
        self._file.writelines(f"{key} {total}\n" for key, total in items)

    def close(self) -> None:
        self._file.close()


class LineSink(DynamicSink[tuple[str, int]]):
    """One file per worker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        return Lines(self._folder / f"out-{worker_index}")


def flow_of(case: Case, records: int, folder: Path) -> Dataflow:
    rows = Rows(case.records, case.keys, case.kind)
    every, sample, key_of = rows.every, rows.sample, rows.key

    def keyed(number: int) -> tuple[str, int]:
        key = key_of(number)
        return str(key), key + 1

    def add(state: int | None, value: int) -> tuple[int | None, int]:
        total = (state or 0) + value
        return total, total if total % (value * every) == 0 and (value - 1) % sample == 0 else 0

    flow = Dataflow("bench")
    numbers = op.input("numbers", flow, NumberSource(records, case.slots))
    totals = op.stateful_map("add", op.map("key", numbers, keyed), add)
    op.output("out", op.filter("due", totals, lambda pair: pair[1] != 0), LineSink(folder))
    return flow


def run(case: Case, records: int, folder: Path) -> None:
    """Run the flow in as many processes as there are slots, each of which runs this file again."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    ports = [f"127.0.0.1:{port}" for port in _free_ports(case.slots)]
    recovery = folder / "recovery"
    if case.checkpoint_ms:
        from bytewax.recovery import init_db_dir

        recovery.mkdir()
        init_db_dir(recovery, case.slots)
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, case.text(), json.dumps([records, str(folder), ports, at])]
        )
        for at in range(case.slots)
    ]
    if any(process.wait() for process in processes):
        raise RuntimeError("a process of the flow failed")


def run_process(case: Case, records: int, folder: Path, addresses: list[str], index: int) -> None:
    """One process of the cluster."""
    from bytewax._bytewax import cluster_main  # the function behind `python -m bytewax.run`

    options: dict[str, Any] = {"addresses": addresses, "proc_id": index}
    if case.checkpoint_ms:
        from bytewax.recovery import RecoveryConfig

        options["epoch_interval"] = timedelta(milliseconds=case.checkpoint_ms)
        options["recovery_config"] = RecoveryConfig(str(folder / "recovery"), timedelta(0))
    cluster_main(flow_of(case, records, folder), **options)


def _free_ports(count: int) -> Iterator[int]:
    import socket

    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    yield from ports


def results(folder: Path) -> list[tuple[int, int]]:
    lines = [line.split() for path in sorted(folder.glob("out-*")) for line in path.open()]
    return [(int(key), int(total)) for key, total in lines]


def measure(case: Case) -> dict[str, Any]:
    if case.state != "value" or case.backend != "heap" or case.ttl:
        raise RuntimeError("Bytewax has one kind of state, in memory, without TTL")
    folder = Path(tempfile.mkdtemp(prefix="bench-bytewax-")) / "run"
    try:
        rows = Rows(case.records, case.keys, case.kind)
        start, _ = timed(lambda: run(case, FEW, folder))
        seconds, _ = timed(lambda: run(case, case.records, folder))
        steady = seconds - start
        if steady < MINIMUM_S:
            raise RuntimeError(
                f"{case.records} rows took only {steady:.1f} s more than {FEW}; ask for more rows"
            )
        return {
            "rate": (case.records - FEW) / steady,
            "steady_s": steady,
            "startup_s": start,
            "correct": is_correct("value", rows, results(folder)),
        }
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        records, folder, addresses, index = json.loads(sys.argv[2])
        run_process(Case.parse(sys.argv[1]), records, Path(folder), addresses, index)
    else:
        answer(measure)
