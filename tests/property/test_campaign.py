"""`make test` has one verdict on one tree: what random tests draw follows from nothing but the tests."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaign import SEED, examples, seeds

pytestmark = pytest.mark.skipif(bool(SEED), reason="a campaign draws what its seed says")


def drawn() -> list[int]:
    seen: list[int] = []

    @settings(max_examples=200)
    @given(number=st.integers())
    def collect(number: int) -> None:
        seen.append(number)

    collect()
    return seen


def test_a_property_sees_the_same_examples_in_every_run() -> None:
    assert drawn() == drawn()
    assert settings.default is not None
    assert settings.default.database is None


def test_modules_that_happen_to_be_loaded_do_not_change_the_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn()
    numbers = [10**9 + 7 * n for n in range(500)]
    (tmp_path / "chance_constants.py").write_text(f"NUMBERS = {numbers}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("chance_constants")

    try:
        assert drawn() == before
    finally:
        del sys.modules["chance_constants"]


def test_outside_of_a_campaign_tests_search_no_further_than_they_say() -> None:
    assert examples(40) == 40
    assert seeds(6) == range(6)
