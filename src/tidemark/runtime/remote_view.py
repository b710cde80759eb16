"""A job of another process of this machine, seen through its control endpoint; and what that endpoint answers.

Facts travel as MessagePack; both sides are of the same version, or they would have refused each other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tidemark.errors import ConfigError
from tidemark.futures import CompletableFuture
from tidemark.jobs import JobRecord
from tidemark.runtime.control_client import ControlClient
from tidemark.web.facts import CheckpointFacts, CheckpointHistory, JobFacts, OperatorStates, Series
from tidemark.web.view import JobView

__all__ = ["RemoteJobView", "answer_view"]

_ANSWER_S = 5.0
_FRESH_S = 0.9

T = TypeVar("T")


def answer_view(view: JobView, arguments: dict[str, Any]) -> Any:
    """What a job answers when another process asks for a part of its view.

    Raises:
        ConfigError: There is no such part.
    """
    match arguments:
        case {"part": "facts"}:
            found: Any = view.facts()
        case {"part": "checkpoints"}:
            found = view.checkpoints()
        case {"part": "checkpoint", "checkpoint_id": int(checkpoint_id)}:
            found = view.checkpoint(checkpoint_id)
        case {"part": "states"}:
            found = list(view.states())
        case {"part": "series"}:
            found = view.series()
        case {"part": "query", "state": str(name), "key": key}:
            found = view.query(name, key)
        case {"part": "logs"}:
            found = view.logs()
        case {"part": "log", "file": str(name)}:
            found = view.log(name)
        case _:
            raise ConfigError(f"A job's view has no part {arguments.get('part')!r}.")
    return msgspec.to_builtins(found, enc_hook=str)


class RemoteJobView:
    """The `JobView` of a job that runs in another process."""

    def __init__(self, record: JobRecord) -> None:
        """Prepare; every question makes a connection of its own."""
        self._record = record
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, Any]] = {}

    @property
    def job_id(self) -> str:
        """Its id."""
        return self._record.job_id

    def facts(self) -> JobFacts:
        """Everything but its checkpoints."""
        return self._recent("facts", JobFacts)

    def checkpoints(self) -> CheckpointHistory:
        """Its snapshots."""
        return self._recent("checkpoints", CheckpointHistory)

    def checkpoint(self, checkpoint_id: int) -> CheckpointFacts | None:
        """One snapshot with its subtasks."""
        found = self._ask("checkpoint", checkpoint_id=checkpoint_id)
        return None if found is None else msgspec.convert(found, CheckpointFacts)

    def states(self) -> Sequence[OperatorStates]:
        """The states of its operators."""
        return self._recent("states", list[OperatorStates])

    def query(self, name: str, key: Any) -> Any:
        """The value of a queryable state for a key."""
        return self._ask("query", state=name, key=key)

    def series(self) -> Series:
        """Its curves."""
        return self._recent("series", Series)

    def logs(self) -> dict[str, int]:
        """Its log files."""
        return self._recent("logs", dict[str, int])

    def log(self, name: str) -> str | None:
        """The end of a log file."""
        return None if (text := self._ask("log", file=name)) is None else str(text)

    def savepoint(self, directory: str | None) -> CompletableFuture[str]:
        """Take a savepoint."""
        return self._begin("savepoint", str, directory=directory)

    def checkpoint_now(self) -> CompletableFuture[str]:
        """Take a checkpoint."""
        return self._begin("checkpoint", str)

    def stop(self, drain: bool, directory: str | None) -> CompletableFuture[str]:
        """Take a savepoint and end the job."""
        return self._begin("stop", lambda answer: str(answer["savepoint"]), drain=drain, directory=directory)

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        """Go on with another parallelism."""
        return self._begin("rescale", str, parallelism=parallelism)

    def cancel(self) -> None:
        """End the job."""
        self._begin("cancel", str)

    def _begin(self, name: str, outcome: Callable[[Any], str], **arguments: Any) -> CompletableFuture[str]:
        """Ask in a thread: the answer may take as long as the job takes."""
        future: CompletableFuture[str] = CompletableFuture()

        def run() -> None:
            try:
                with ControlClient.of_record(self._record) as client:
                    future.set_result(outcome(client.request(name, **arguments)))
            except Exception as exc:
                future.set_exception(exc)

        threading.Thread(target=run, name=f"web-{name}", daemon=True).start()
        return future

    def _recent(self, part: str, kind: type[T]) -> T:
        with self._lock:
            at, known = self._known.get(part, (0.0, None))
            if known is None or time.monotonic() - at > _FRESH_S:
                known = msgspec.convert(self._ask(part), kind)
                self._known[part] = (time.monotonic(), known)
            found: T = known
            return found

    def _ask(self, part: str, **arguments: Any) -> Any:
        with ControlClient.of_record(self._record, _ANSWER_S) as client:
            return client.request("view", part=part, **arguments)
