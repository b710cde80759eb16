"""Random programs on the heap backend against plain dictionaries."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.testing.backend_driver import BackendDriver
from tidemark.testing.backend_model import Step, programs, run_program


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=300)
@given(program=programs())
def test_heap_state_agrees_with_dictionaries(ttl: bool, program: list[Step]) -> None:
    run_program(BackendDriver(HeapKeyedStateBackend, Path("unused")), program, ttl)
