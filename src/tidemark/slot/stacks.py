"""Where user code hangs: the threads of this process that are inside an operator, with their stacks."""

from __future__ import annotations

import sys
import threading
import traceback
from types import FrameType

from tidemark.operators.base import Operator

__all__ = ["operator_stacks"]


def operator_stacks(thread_id: int | None = None) -> str:
    """The stacks of the threads that run an operator (or of one thread), each under the operator's name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    told = []
    for ident, frame in sys._current_frames().items():
        if ident != thread_id and thread_id is not None:
            continue
        operator = _operator_in(frame)
        if operator is None and thread_id is None:
            continue
        where = f"operator '{operator}'" if operator is not None else "no operator"
        stack = "".join(traceback.format_stack(frame))
        told.append(f"Thread '{names.get(ident, ident)}' is in {where}:\n{stack}")
    return "\n".join(told) or "No thread is inside an operator."


def _operator_in(frame: FrameType | None) -> str | None:
    """The name of the innermost operator on the stack."""
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, Operator):
            environment = getattr(owner, "_environment", None)
            return type(owner).__name__ if environment is None else str(environment.info.name)
        frame = frame.f_back
    return None
