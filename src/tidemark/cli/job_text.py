"""Running jobs as a table, for `top`."""

from __future__ import annotations

from typing import Any

from tidemark.cli.text import columns, date_time, visible

__all__ = ["job_table"]


def job_table(jobs: list[dict[str, Any]]) -> list[str]:
    """A line per job, for `top`."""
    if not jobs:
        return ["No job runs on this machine."]
    rows: list[tuple[Any, ...]] = [
        (
            "ID",
            "NAME",
            "STATUS",
            "MODE",
            "ATTEMPT",
            "RECORDS",
            "RECORDS/S",
            "WATERMARK",
            "CHECKPOINT",
            "STATE",
        )
    ]
    for job in jobs:
        speed = job.get("records_per_second")
        watermark = job.get("watermark")
        rows.append(
            (
                job["job_id"][:8],
                job["name"][:30],
                job["status"],
                job.get("mode"),
                job.get("attempt"),
                job.get("records"),
                None if speed is None else f"{speed:,.0f}",
                None if watermark is None or abs(watermark) >= 2**62 else date_time(watermark),
                job.get("last_checkpoint"),
                job.get("state_entries"),
            )
        )
    return [visible(line) for line in columns(rows)]
