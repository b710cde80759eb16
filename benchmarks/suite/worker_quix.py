"""Worker of Quix Streams: records counted by key, one process with all partitions.

Settings: state in RocksDB as always there, no changelog topics (nobody restores here), commits every second, results
kept in this process. The end of the input is told by the number of records, as nothing else does there.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import uuid
from typing import Any

from quixstreams import Application

from suite import kafka_work
from suite.worker import Case, answer


def run(case: Case, topic: str, records: int) -> list[tuple[str, int]]:
    folder = tempfile.mkdtemp(prefix="bench-quix-")
    found: list[tuple[str, int]] = []
    left = records
    app = Application(
        broker_address=case.options["bootstrap"],
        consumer_group=f"quix-{uuid.uuid4().hex}",
        auto_offset_reset="earliest",
        commit_interval=1.0,
        state_dir=folder,
        use_changelog_topics=False,
        loglevel=None,
    )

    def count(value: str, state: Any) -> None:
        nonlocal left
        total = state.get("count", 0) + 1
        state.set("count", total)
        if total % kafka_work.EVERY == 0:
            found.append((value, total))
        left -= 1
        if not left:
            app.stop()

    numbers = app.dataframe(app.topic(topic, value_deserializer="str", key_deserializer="str"))
    numbers.apply(count, stateful=True)
    try:
        app.run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def measure(case: Case) -> dict[str, Any]:
    logging.getLogger("quixstreams").setLevel(logging.ERROR)
    sizes = {case.options["few"]: kafka_work.FEW, case.options["topic"]: case.records}
    return kafka_work.figures(case, lambda topic: run(case, topic, sizes[topic]))


if __name__ == "__main__":
    answer(measure)
