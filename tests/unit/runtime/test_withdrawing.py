"""Which sinks can take back what they published when a job goes behind it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidemark.api.specs import CollectSinkSpec, ForeachBatchSinkSpec, PrintSinkSpec, SinkSpec
from tidemark.runtime.sinks.dataframes import ForeachBatchSink
from tidemark.runtime.sinks.driver import CollectSink, PrintSink
from tidemark.runtime.sinks.file_driver import FilesSink


def vertex(spec: SinkSpec | None = None) -> Any:
    return SimpleNamespace(id=1, name="sink", uid="sink", spec=spec)


def test_only_file_sinks_take_output_back(tmp_path: Path) -> None:
    files = FilesSink(vertex(), str(tmp_path), "ab" * 16)
    files.claim("ab" * 16, None)
    collect = CollectSink(vertex(CollectSinkSpec(None)))  # type: ignore[arg-type]

    assert (files.publishes, files.withdraw(b"", b"")) == (True, True)
    assert (collect.publishes, collect.withdraw(b"", b"")) == (True, False)
    for other in (PrintSink(vertex(PrintSinkSpec())), ForeachBatchSink(vertex(ForeachBatchSinkSpec(print)))):
        assert (other.publishes, other.withdraw(b"", b"")) == (False, False)
    files.close()
