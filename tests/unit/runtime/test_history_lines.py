from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tidemark.runtime.history import EndedJob, read_history


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = EndedJob("a", "name", "FINISHED", 1, 2, 3)
    bad = [b"{", b'{"name": "\xff"}', b'{"more": ' + b"[" * 200_000]
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    file = home / "history.jsonl"
    file.write_bytes(b"\n".join([*bad, msgspec.json.encode(job)]))
    file.chmod(0o600)
    monkeypatch.setenv("TIDEMARK_HOME", str(home))

    assert read_history() == [job]
