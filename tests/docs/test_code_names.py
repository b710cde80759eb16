"""Every code name in backticks, in the pages and in docstrings, names something that exists."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest
from tests.docs.markdown import PAGES, ROOT, prose

PACKAGE = ROOT / "src" / "tidemark"
FOLDERS = ("src", "tests", "examples", "benchmarks", "scripts")
CODE = [
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    # Benchmarks install the engines they compare with into a hidden directory.
    if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]

FOREIGN = {
    "ArrowWriter": "a class of Spark",
    "AsyncDataStream": "said to be missing",
    "QualName": "stands for any class",
    "SparkContext": "a class of pyspark",
    "UnsupportedClassVersionError": "what an old Java says",
    "cleanSource": "an option of Spark's file source",
    "copyWith": "a method of py4j's Java side",
    "count.py": "the reader's own program",
    "do_exchange": "a call of Arrow Flight, which decision 1 refuses",
    "dynamicAllocation": "spark.dynamicAllocation.enabled",
    "epoch_id": "a parameter of a function that users write",
    "memoryOverhead": "spark.executor.memoryOverhead",
    "sizeInBytes": "a method of Spark's ArrowWriter",
}
"""Names of other people's things."""

_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z_][\w.]*(\(\))?")
_PLACE = re.compile(r"(?P<file>[\w/]+\.py)(?::(?P<name>[\w.]+))?$")


def spans(text: str) -> list[str]:
    """What stands in backticks."""
    return _SPAN.findall(text)


@cache
def known() -> frozenset[str]:
    """Names that code uses, words of its strings, and names of files; documentation does not count."""
    words: set[str] = set()
    for path in CODE:
        words.update(_WORD.findall(path.relative_to(ROOT).as_posix()))
        text = path.read_text(encoding="utf-8")
        documentation = {
            id_ for node in ast.walk(ast.parse(text)) if (id_ := _docstring_line(node)) is not None
        }
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME:
                words.add(token.string)
            elif token.type == tokenize.STRING and token.start not in documentation:
                words.update(_WORD.findall(token.string))
    for path in [
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
        *(ROOT / "scripts").iterdir(),
        *(ROOT / "docs").rglob("*"),
    ]:
        words.update(_WORD.findall(path.relative_to(ROOT).as_posix()))
        if path.suffix in ("", ".toml", ".sh") and path.is_file():
            words.update(_WORD.findall(path.read_text(encoding="utf-8")))
    return frozenset(words)


def _docstring_line(node: ast.AST) -> tuple[int, int] | None:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.lineno, node.value.col_offset
    return None


def unresolved(span: str) -> str | None:
    """What of a span does not exist, if anything; only plain names, calls and places in files are judged."""
    place = _PLACE.fullmatch(span)
    if place is not None and span not in FOREIGN:
        files = [path for path in CODE if path.as_posix().endswith(f"/{place['file']}")]
        name = place["name"]
        return None if any(name is None or name in _defined(path) for path in files) else span
    if _NAME.fullmatch(span) is None:
        return None
    words = [word for word in _WORD.findall(span) if "_" in word.strip("_") or word[1:] != word[1:].lower()]
    return next(
        (f"{word} in `{span}`" for word in words if word not in known() and word not in FOREIGN), None
    )


@cache
def _defined(path: Path) -> frozenset[str]:
    """Functions, classes and methods (`Class.method`) of a module."""
    found: set[str] = set()

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + child.name)
                walk(child, f"{prefix}{child.name}.")

    walk(ast.parse(path.read_text(encoding="utf-8")), "")
    return frozenset(found)


# The change log and old reports tell of names that are gone.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md" and "benchmarks" not in page.parts]


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_names_in_a_page_exist(page: Path) -> None:
    assert [missing for span in spans(prose(page)) if (missing := unresolved(span)) is not None] == []


def test_names_in_docstrings_exist() -> None:
    missing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for span in spans(ast.get_docstring(node) or ""):
                    if (what := unresolved(span)) is not None:
                        missing.append(f"{path.relative_to(ROOT)}: {what}")

    assert missing == []
