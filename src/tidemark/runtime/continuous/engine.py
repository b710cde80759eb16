"""The seam between the driver of a continuous job and what runs its tasks."""

from __future__ import annotations

from typing import Protocol

from tidemark.protocol.tasks import TaskCommand, TaskDirective, TaskEvent
from tidemark.runtime.engine import Engine

__all__ = ["TaskEngine"]


class TaskEngine(Engine, Protocol):
    """An engine that can also run tasks that last as long as the attempt.

    Attributes:
        tasks: How many tasks an attempt has.
        moved: Whether tasks did anything that the last `task_events` may not tell of.
    """

    tasks: int
    moved: bool

    def start_tasks(self, directive: TaskDirective) -> None:
        """Start the tasks of an attempt; every slot is deployed.

        Raises:
            ConfigError: Spark has not enough free cores for them.
        """

    def tell(self, task: int, command: TaskCommand) -> None:
        """Send a command to a task; commands to one task are obeyed in their order."""

    def task_events(self) -> list[TaskEvent]:
        """What tasks said since the last call, each in its own order. The local engine lets them step meanwhile."""

    def end_tasks(self) -> None:
        """Let every task end, and wait until it has. Idempotent."""
