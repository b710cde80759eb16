"""What tests of jobs and functions need: a clock to move by hand, harnesses, operator snapshots."""

from __future__ import annotations

from tidemark.clock import ManualClock
from tidemark.testing.harness import BroadcastHarness, OneInputHarness, TwoInputHarness
from tidemark.testing.scripts import (
    ADVANCE,
    AT,
    BARRIER,
    CHECKPOINT,
    CRASH,
    CRASH_AT,
    END,
    RESCALE,
    SAVEPOINT,
    WATERMARK,
    run_script,
)
from tidemark.testing.snapshot import OperatorSnapshot

__all__ = [
    "ADVANCE",
    "AT",
    "BARRIER",
    "CHECKPOINT",
    "CRASH",
    "CRASH_AT",
    "END",
    "RESCALE",
    "SAVEPOINT",
    "WATERMARK",
    "BroadcastHarness",
    "ManualClock",
    "OneInputHarness",
    "OperatorSnapshot",
    "TwoInputHarness",
    "run_script",
]
