"""Python in the README, guides and concepts is run as it stands, in the local executor or on Spark.

The info string of a block says what happens to it: `python` runs in the local executor, `python spark` on a
local Spark session (marker `spark`), `python sketch` is only compiled. Blocks of one page share a namespace
and run in order. A block `text output` holds what the block before it prints; `text output unordered` the
same lines in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.markdown import PAGES, ROOT, Block, blocks
from tests.integration.conftest import shared_session

WITH_CODE = [page for page in PAGES if any(b.words[:1] == ("python",) for b in blocks(page))]


def _id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _kind(block: Block) -> str | None:
    if block.words[:1] != ("python",):
        return None
    return block.words[1] if len(block.words) > 1 else "local"


def _run(page: Path, kind: str, capture: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: list[str] | None = None
    for block in blocks(page):
        if _kind(block) == kind:
            capture.readouterr()
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
            printed = capture.readouterr().out.splitlines()
        elif _kind(block) is not None:
            printed = None
        elif block.words[:2] == ("text", "output") and printed is not None:
            expected = block.text.splitlines()
            if "unordered" in block.words:
                printed, expected = sorted(printed), sorted(expected)
            assert printed == expected, block.where


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    return


@pytest.mark.parametrize("page", WITH_CODE, ids=_id)
def test_blocks_run_in_the_local_executor(
    page: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_EXECUTION_TARGET", "local")

    _run(page, "local", capfd)


@pytest.mark.spark
@pytest.mark.parametrize(
    "page", [page for page in WITH_CODE if any(_kind(b) == "spark" for b in blocks(page))], ids=_id
)
def test_blocks_run_on_spark(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # The session every other test on Spark uses; the page's own getOrCreate() finds it.
    shared_session()

    _run(page, "spark", capfd)


@pytest.mark.parametrize("page", WITH_CODE, ids=_id)
def test_every_block_compiles(page: Path) -> None:
    for block in blocks(page):
        if _kind(block) is not None:
            compile(block.text, block.where, "exec")
            assert _kind(block) in ("local", "spark", "sketch"), block.where


def test_readme_shows_code_that_is_run() -> None:
    kinds = [_kind(block) for block in blocks(ROOT / "README.md")]

    assert "local" in kinds
