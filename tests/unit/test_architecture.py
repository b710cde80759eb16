"""The import graph, imports inside functions included, is the one that ARCHITECTURE.md's table of layers allows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tidemark"
FACADES = {"__init__", "common", "datastream", "testing", "demo"}
"""Re-exports, and what ships to users' tests: they may import anything, and nothing imports them."""


def layers() -> list[set[str]]:
    """The rows of the table "Layers", top first: the packages and modules of each."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.search(r"^## Layers$.*?^\|---\|---\|---\|$\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert rows is not None, "ARCHITECTURE.md has no table of layers"
    return [set(re.findall(r"`(\w+)`", row.split("|")[2])) for row in rows[1].splitlines()]


LAYERS = layers()
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """The package or top-level module that a file belongs to."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level part of everything of ours that a module imports at run time."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _running(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tidemark":
            names = [f"tidemark.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [node.module or ""]
        else:
            continue
        for name in names:
            if name.startswith("tidemark."):
                yield node.lineno, name.split(".")[1]


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below, but for those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _running(child)


def test_every_package_has_a_layer() -> None:
    parts = {part_of(path) for path in MODULES} - FACADES

    assert parts - LEVEL.keys() == set(), "packages that the table of layers does not name"
    assert LEVEL.keys() - parts == set(), "the table of layers names what does not exist"


def test_imports_point_down() -> None:
    wrong = []
    for path in MODULES:
        here = part_of(path)
        if here in FACADES:
            continue
        for line, there in imports(path):
            if there != here and (there in FACADES or LEVEL[there] <= LEVEL[here]):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {there}, which is not below {here}")

    assert wrong == []


def test_only_runtime_and_the_state_processor_import_pyspark() -> None:
    found = {
        part_of(path)
        for path in MODULES
        for node in _running(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            name.split(".")[0] in ("pyspark", "py4j")
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
        )
    }

    assert found <= {"runtime", "state_processor"}
