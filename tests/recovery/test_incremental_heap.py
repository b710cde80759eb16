"""Incremental checkpoints of the heap in whole jobs: which files are kept, which are refused, what is restored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.recovery.local_jobs import DEADLINE, Count, Numbers, local_env, new_board

from tidemark import HashMapStateBackend, Types
from tidemark.checkpoint.inspection import verify
from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.metadata import read_metadata
from tidemark.checkpoint.storage.filesystem import FileSystemStorage

BLOCKS, SIZE, HOT = 8, 50, 5


def build(directory: Path, told: Any, blocks: int, parallelism: int, **settings: str) -> Any:
    env = local_env(
        {
            "state.checkpoints.dir": str(directory),
            "state.checkpoints.num-retained": "2",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "state.backend.incremental": "true",
            "state.backend.heap.incremental.max-changes": "3",
            **settings,
        },
        parallelism,
        HashMapStateBackend(),
    )
    env.enable_checkpointing(10)
    numbers = env.add_source(
        Numbers(told.name, blocks, SIZE, bounded=blocks != BLOCKS), type_info=Types.LONG()
    )
    # Many keys in the first block, a few of them in all others.
    keyed = numbers.uid("numbers").key_by(lambda n: n if n < SIZE else n % HOT, Types.LONG())
    return keyed.process(Count()).uid("count")


def shared_files(checkpoint: Path) -> set[str]:
    metadata = read_metadata(FileSystemStorage(), str(checkpoint))
    return {
        file.path or ""
        for operator in metadata.operators
        for subtask in operator.subtasks
        for file in (subtask.native.files if subtask.native is not None else ())
    }


def test_retained_chains_are_whole_and_any_damaged_link_is_named(tmp_path: Path) -> None:
    told = new_board()
    with build(tmp_path, told, BLOCKS, 2).execute_and_collect() as results:
        told.wait_set("emitted")
        results.get_job_client().cancel().result(DEADLINE)
    retained = sorted(tmp_path.glob("*/chk-*"), key=lambda path: int(path.name[4:]))
    assert len(retained) == 2
    assert [verify(str(path)) for path in retained] == [[], []]
    shared = Path(savepoint_location(str(retained[-1])).shared)
    named = shared_files(retained[0]) | shared_files(retained[1])
    assert {path.name for path in shared.iterdir()} == named
    assert len(shared_files(retained[1])) > 2, "two subtasks, and at least one of them has a chain"

    for name in shared_files(retained[1]):
        intact = (shared / name).read_bytes()
        (shared / name).write_bytes(intact[:-1] + bytes([intact[-1] ^ 1]))
        [problem] = verify(str(retained[1]))
        assert name in problem
        start = {"execution.state-recovery.path": str(retained[1]), "restart-strategy": "none"}
        with (
            pytest.raises(Exception, match=name),
            build(tmp_path / "other", new_board(), BLOCKS + 1, 2, **start).execute_and_collect() as more,
        ):
            list(more)
        (shared / name).write_bytes(intact)

    start = {"execution.state-recovery.path": str(retained[1])}
    with build(tmp_path / "other", new_board(), BLOCKS + 1, 3, **start).execute_and_collect() as more:
        lines = Counter(more)
    seen = 1 + (BLOCKS - 1) * SIZE // HOT
    assert lines == Counter(
        (key, seen + number) for key in range(HOT) for number in range(1, SIZE // HOT + 1)
    )
