"""Random programs on the RocksDB backend against plain dictionaries."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.campaign import examples

from tidemark.backends.rocksdb import RocksDBKeyedStateBackend
from tidemark.state.backend import BackendParameters
from tidemark.testing.backend_driver import BackendDriver
from tidemark.testing.backend_model import Step, programs, run_program


def run(program: list[Step], ttl: bool, **options: Any) -> None:
    def create(parameters: BackendParameters) -> RocksDBKeyedStateBackend:
        return RocksDBKeyedStateBackend(replace(parameters, options=options))

    with tempfile.TemporaryDirectory() as directory:
        driver = BackendDriver(create, Path(directory))
        try:
            run_program(driver, program, ttl)
        finally:
            driver.close()


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=examples(15))
@given(program=programs())
def test_rocksdb_state_agrees_with_dictionaries(ttl: bool, program: list[Step]) -> None:
    run(program, ttl, read_cache_size=0)


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=examples(15))
@given(program=programs())
def test_what_is_kept_between_batches_agrees_with_dictionaries(ttl: bool, program: list[Step]) -> None:
    run(program, ttl, read_cache_size=4096, ttl_compaction_filter_enabled=True)
