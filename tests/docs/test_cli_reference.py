"""The page of the command line names every command and every option."""

from __future__ import annotations

import re

import click
import pytest
from tests.docs.markdown import ROOT

from tidemark.cli.main import cli

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
COMMON = {"help", "version"}
"""What every command has; said once, or known to everybody."""


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_command_and_its_options_stand_on_the_page(name: str) -> None:
    told = [line for line in PAGE.splitlines() if re.search(rf"`(?:tidemark )?{name}\b", line)]
    options = [option for option in cli.commands[name].params if isinstance(option, click.Option)]

    missing = [
        option.opts
        for option in options
        if option.name not in COMMON
        and not any(re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", PAGE) for word in option.opts)
    ]

    assert told, f"`{name}` is not on the page"
    assert missing == []
