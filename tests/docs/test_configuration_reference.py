"""The configuration reference is what the option table says."""

from __future__ import annotations

import runpy

from tests.docs.markdown import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts/make_config_reference.py"))


def test_reference_page_is_up_to_date() -> None:
    written = SCRIPT["PAGE"].read_text(encoding="utf-8")

    assert written == SCRIPT["page"](), "run python scripts/make_config_reference.py"


def test_every_option_has_a_section_of_its_own_kind() -> None:
    assert "Further keys" not in SCRIPT["page"]()


def test_options_without_effect_are_listed_among_the_limits() -> None:
    assert SCRIPT["LIMITS"].read_text(encoding="utf-8") == SCRIPT["limits"]()
