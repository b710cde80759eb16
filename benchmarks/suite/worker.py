"""How a worker talks to the suite: one JSON object as argument, one JSON line with the result.

A worker measures one case of one system once, in a process of its own and in that system's environment.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

MARK = "BENCH-RESULT "


@dataclass(frozen=True, slots=True)
class Case:
    """What to measure."""

    system: str
    state: str = "value"
    """value, list, map, window, broadcast; or a measurement of its own: latency, recovery, pair-ttl, nexmark-q5 ..."""
    records: int = 1_000_000
    keys: int = 10_000
    kind: str = "uniform"
    backend: str = "heap"
    slots: int = 2
    ttl: bool = False
    checkpoint_ms: int = 0
    epoch_rows: int = 0
    """Rows of an epoch or micro-batch; 0: all rows in one."""
    options: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Case:
        return Case(**json.loads(text))

    def text(self) -> str:
        return json.dumps(asdict(self))


def answer(measure: Callable[[Case], dict[str, Any]]) -> None:
    """Run `measure` on the case in the first argument and print what it returns; used by every worker's main."""
    case = Case.parse(sys.argv[1])
    started = time.perf_counter()
    try:
        result = measure(case)
    except BaseException as exc:
        traceback.print_exc()
        result = {"error": f"{type(exc).__name__}: {exc}".splitlines()[0][:300]}
    result["wall_s"] = time.perf_counter() - started
    print(MARK + json.dumps(result), flush=True)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what the action returned."""
    started = time.perf_counter()
    value = action()
    return time.perf_counter() - started, value
