"""What the end of a job leaves of its notes: checkpoints that cannot be deleted, drivers that come then. No JVM."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.recovery.local_jobs import DEADLINE, Numbers, local_env, new_board

from tidemark import BucketAssigner, CustomCheckpointStorage, Encoder, FileSink, Types
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.errors import ExecutionError, FencedError

ONCE = Counter(str(number) for number in range(40))


class Watched(FileSystemStorage):
    """A file storage that lets the test act when something is deleted or read."""

    def __init__(self) -> None:
        super().__init__(sync=False)

    def on_delete(self, path: str) -> None:
        """In front of every deletion."""

    def after_read(self, path: str) -> None:
        """Behind every read."""

    def delete(self, path: str) -> None:
        self.on_delete(path)
        super().delete(path)

    def delete_tree(self, path: str) -> None:
        self.on_delete(path)
        super().delete_tree(path)

    def read(self, path: str) -> bytes:
        data = super().read(path)
        self.after_read(path)
        return data


class Tail(Numbers):
    """Emits numbers that no checkpoint has covered when it ends."""

    def run(self, ctx: Any) -> None:
        super().run(ctx)
        with ctx.get_checkpoint_lock():
            for number in range(40, 45):
                ctx.collect(number)


def start(
    tmp_path: Path,
    board: Any,
    storage: FileSystemStorage,
    checkpoint: Path | None = None,
    source: type[Numbers] = Numbers,
) -> Any:
    """A job that publishes the numbers below 40 and keeps every checkpoint until it ends."""
    settings = {"state.checkpoints.num-retained": "1000"}
    if checkpoint is not None:
        settings["execution.savepoint.path"] = str(checkpoint)
    env = local_env(settings)
    env.enable_checkpointing(10)
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(1000)
    place = CustomCheckpointStorage(storage, str(tmp_path / "checkpoints"))
    env.get_checkpoint_config().set_checkpoint_storage(place)
    numbers = env.add_source(source(board.name, 4, bounded=False), type_info=Types.LONG()).uid("numbers")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    numbers.map(str, Types.STRING()).sink_to(sink.build()).uid("out")
    return env.execute_async()


def checkpoints(tmp_path: Path) -> list[Path]:
    """Directories with metadata, oldest first."""
    found = [path.parent for path in (tmp_path / "checkpoints").glob("*/chk-*/_metadata")]
    return sorted(found, key=lambda path: int(path.name[4:]))


def notes(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "out").glob(".tidemark-*/.area-*/.frontier"))


def published(tmp_path: Path) -> Counter[str]:
    files = (tmp_path / "out").glob("part-*")
    return Counter(line for path in files for line in path.read_text().splitlines())


def finished(client: Any, board: Any) -> None:
    board.wait_set("emitted")
    board.set("end")
    client.get_job_execution_result().result(DEADLINE)


def refused(client: Any) -> FencedError:
    error = client.get_job_execution_result().exception(DEADLINE)
    assert isinstance(error, ExecutionError)
    assert isinstance(error.__cause__, FencedError)
    return error.__cause__


@pytest.mark.parametrize("stuck", ["chk-1", "everything"])
def test_a_checkpoint_that_could_not_be_deleted_at_the_end_repeats_nothing(
    tmp_path: Path, stuck: str
) -> None:
    class Immutable(Watched):
        def on_delete(self, path: str) -> None:
            if stuck == "everything" or f"/{stuck}" in path or "/chk-" not in path:
                raise PermissionError(1, "Operation not permitted", path)

    board = new_board()
    finished(start(tmp_path, board, Immutable()), board)
    assert published(tmp_path) == ONCE
    oldest = checkpoints(tmp_path)[0]
    assert oldest.name == "chk-1"

    again = new_board()
    again.set("end")

    error = refused(start(tmp_path, again, FileSystemStorage(), oldest))

    assert "would write records again" in str(error)
    assert published(tmp_path) == ONCE


def test_the_notes_go_after_the_last_checkpoint_and_not_before(tmp_path: Path) -> None:
    seen: list[int] = []

    class Seen(Watched):
        def on_delete(self, path: str) -> None:
            if path.endswith("_metadata"):
                seen.append(len(notes(tmp_path)))

    board = new_board()
    finished(start(tmp_path, board, Seen()), board)

    assert set(seen) == {1}
    assert checkpoints(tmp_path) == []
    assert not list((tmp_path / "out").glob(".tidemark*")), (
        "nothing is left to start from, so nothing is noted"
    )


def test_a_sink_that_cannot_be_cleared_away_does_not_undo_what_is_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Blocked(Watched):
        def on_delete(self, path: str) -> None:
            # The snapshots go first, the sink's area next: a directory in it cannot be unlinked.
            for note in notes(tmp_path):
                (note.parent / "foreign").mkdir(exist_ok=True)

    board = new_board()
    client = start(tmp_path, board, Blocked())
    finished(client, board)

    assert published(tmp_path) == ONCE
    assert checkpoints(tmp_path) == []
    assert notes(tmp_path), "what could not be cleared away is there"
    (told,) = [record for record in caplog.records if "What is published stays" in record.getMessage()]
    assert "'tidemark clean'" in told.getMessage()
    assert "cannot be closed" in told.getMessage()


def test_what_was_published_at_the_end_without_a_last_checkpoint_comes_only_once(tmp_path: Path) -> None:
    class Gone(Watched):
        gone = False

        def write(self, path: str, data: bytes) -> None:
            self.on_delete(path)
            super().write(path, data)

        def on_delete(self, path: str) -> None:
            if self.gone:
                raise OSError(5, "Input/output error", path)

    board, storage = new_board(), Gone()
    client = start(tmp_path, board, storage, source=Tail)
    board.wait_set("emitted")
    storage.gone = True
    finished(client, board)
    tail = Counter(str(number) for number in range(40, 45))
    assert published(tmp_path) == ONCE + tail
    again = new_board()
    again.set("end")

    error = refused(start(tmp_path, again, FileSystemStorage(), checkpoints(tmp_path)[-1], source=Tail))

    assert "would write records again" in str(error)
    assert published(tmp_path) == ONCE + tail


def test_a_driver_that_claims_when_the_one_before_it_has_just_ended_is_refused(tmp_path: Path) -> None:
    first = new_board()
    older = start(tmp_path, first, FileSystemStorage())
    first.wait_set("emitted")
    here = threading.current_thread()

    class Late(Watched):
        ended = False

        def after_read(self, path: str) -> None:
            # The program itself has read it before; this is the job, which claims its sinks next.
            if path.endswith("_metadata") and threading.current_thread() is not here and not self.ended:
                self.ended = True
                finished(older, first)
                assert not list((tmp_path / "out").glob(".tidemark*"))

    late = Late()
    second = new_board()
    second.set("end")

    error = refused(start(tmp_path, second, late, checkpoints(tmp_path)[0]))

    assert late.ended
    assert "has ended meanwhile" in str(error)
    assert published(tmp_path) == ONCE
