"""What MkDocs does for our site beyond its configuration.

Pages stay readable where they lie. On the site the README is the first page, the pages beside it are pages too, the API
reference is made from docstrings, and two code blocks in a row, another system's first, stand side by side.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    "docs/README.md": "contents.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
}
"""Pages and files whose place on the site is not their place in `docs/`."""

_ORIGIN = {site: repository for repository, site in ELSEWHERE.items()}
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
_INFO = re.compile(r"^```(\w+)[^\n]*", re.MULTILINE)
_OTHERS = "java|scala|python sketch"
_BODY = r"\n(?:(?!```).*\n)*```"
_PAIR = re.compile(rf"^(```(?:{_OTHERS}){_BODY})\n\n(```python(?: spark)?{_BODY})$", re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
_LIST = re.compile(r"^((?![-*] |\d+\. |\s|[|#>]|```).+)\n(?=- |1\. )", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add what does not lie in `docs/`."""
    contents = files.get_file_from_path("README.md")
    if contents is not None:
        files.remove(contents)
    for name, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for name, text in _api_pages().pages():
        files.append(File.generated(config, f"reference/api/{name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Say to Markdown what GitHub guesses: where links lead, where lists begin, what the words behind a fence are."""
    here = page.file.src_uri
    if here.startswith("reference/api/"):
        return markdown
    markdown = _PAIR.sub(r'<div class="beside" markdown>' "\n\n\\1\n\n\\2\n\n</div>", markdown)
    parts, end = [], 0
    for block in _BLOCK.finditer(markdown):
        parts += [_prose(here, markdown[end : block.start()]), _INFO.sub(r"```\1", block[0])]
        end = block.end()
    return "".join([*parts, _prose(here, markdown[end:])])


def _prose(here: str, text: str) -> str:
    text = _LIST.sub(r"\1\n\n", text)
    return _LINK.sub(lambda link: link[1] + _on_site(here, link[2]) + link[3], text)


def _on_site(here: str, target: str) -> str:
    """The link of the page at `here` on the site to what it calls `target` in the repository."""
    origin = _ORIGIN.get(here, f"docs/{here}")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    place = ELSEWHERE.get(meant, meant.removeprefix("docs/"))
    return posixpath.relpath(place, posixpath.dirname(here) or ".")


def _api_pages() -> Any:
    spec = importlib.util.spec_from_file_location("api_pages", Path(__file__).with_name("api_pages.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
