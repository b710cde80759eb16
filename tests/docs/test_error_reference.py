"""The page of errors is what the exception tree says."""

from __future__ import annotations

import runpy

from tests.docs.markdown import ROOT

from tidemark import errors

SCRIPT = runpy.run_path(str(ROOT / "scripts/make_error_reference.py"))


def test_reference_page_is_up_to_date() -> None:
    written = SCRIPT["PAGE"].read_text(encoding="utf-8")

    assert written == SCRIPT["page"](), "run python scripts/make_error_reference.py"


def test_every_error_stands_on_it_once() -> None:
    classes = {thing for name in errors.__all__ if isinstance(thing := getattr(errors, name), type)}
    raised = {thing.__name__ for thing in classes if issubclass(thing, errors.TidemarkError)}

    page = SCRIPT["page"]()

    assert {name for name in raised if page.count(f"| `{name}`") != 1} == set()
