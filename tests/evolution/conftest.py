"""Two versions of one program: a module that is written, imported, rewritten and imported again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

HEADER = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Annotated, Optional
from tidemark import Types, written_as
from tidemark.common.serializer import *
"""

MODULE = "evolving_shop"
Define = Callable[[str], ModuleType]


@pytest.fixture
def define(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Define]:
    """Deploys a version of module `evolving_shop`; the classes of the version before are gone."""
    directory = tmp_path / "code"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    # A rewritten file of the same size within a second would be taken for the old one.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def deploy(source: str) -> ModuleType:
        sys.modules.pop(MODULE, None)
        (directory / f"{MODULE}.py").write_text(HEADER + source)
        importlib.invalidate_caches()
        return importlib.import_module(MODULE)

    yield deploy
    sys.modules.pop(MODULE, None)
