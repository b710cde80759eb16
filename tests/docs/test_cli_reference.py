"""The page of the command line names every command and every option."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner
from tests.docs.markdown import ROOT

from tidemark.cli.main import cli

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
COMMON = {"--help", "--json", "--debug", "--address"}
"""What every command has; told once, above them."""
OPTION = re.compile(r"(?<![\w-])-{1,2}[a-zA-Z][\w-]*")


def usages(name: str) -> list[str]:
    """How the page says that a command is called: what stands in backticks and begins with its name."""
    return re.findall(rf"`(?:tidemark )?({name}(?: [^`]*)?)`", PAGE)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_a_command_stands_on_the_page_with_its_options_and_no_others(name: str) -> None:
    command = cli.commands[name]
    commands = [command, *command.commands.values()] if isinstance(command, click.Group) else [command]
    options = [option for one in commands for option in one.params if isinstance(option, click.Option)]
    told = {option for usage in usages(name) for option in OPTION.findall(usage)}

    assert usages(name), f"`{name}` is not on the page"
    assert [
        option.opts for option in options if not told & set(option.opts) and not COMMON & set(option.opts)
    ] == []
    assert told - {word for option in options for word in option.opts} - COMMON == set()


def test_what_every_command_has_stands_on_the_page() -> None:
    assert [option for option in sorted(COMMON - {"--help"}) if f"`{option}" not in PAGE] == []


def test_the_list_of_commands_cuts_no_sentence_off() -> None:
    listed = CliRunner().invoke(cli, ["--help"], terminal_width=80).output

    assert [line for line in listed.splitlines() if line.startswith("  ") and line.endswith("...")] == []
