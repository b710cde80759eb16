"""Write docs/reference/rest-openapi.json from the routes of the web server: `python scripts/make_openapi.py`."""

from __future__ import annotations

import json
from pathlib import Path

from tidemark.web.openapi import document

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "rest-openapi.json"


def text() -> str:
    """The file's content."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
