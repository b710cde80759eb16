"""A made-up job in the shapes of the REST interface: as large as one likes, and it moves on with every look.

Shapes are those of Flink's REST API with our additions; numbers depend on the arguments and on how often `advance`
was called, not on the clock's pace or on chance.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

TRACEBACK = """Traceback (most recent call last):
  File "/srv/jobs/fraud.py", line 41, in process_element
    limit = self.limits[value.country]
            ~~~~~~~~~~~^^^^^^^^^^^^^^^
KeyError: 'XK'
"""
NAMES = (
    "Source: payments",
    "Source: rules",
    "enrich",
    "score",
    "detect fraud",
    "alerts",
    "Sink: archive",
)
EDGES = {
    2: [(0, "REBALANCE")],
    3: [(2, "HASH")],
    4: [(3, "HASH"), (1, "BROADCAST")],
    5: [(4, "FORWARD")],
    6: [(3, "FORWARD"), (5, "FORWARD")],
}


def _summary(low: float, high: float) -> Json:
    middle = (low + high) / 2
    return {
        "min": low,
        "max": high,
        "avg": middle,
        "p50": middle,
        "p90": low + (high - low) * 0.9,
        "p95": low + (high - low) * 0.95,
        "p99": low + (high - low) * 0.99,
        "p999": high,
    }


@dataclass
class CannedJob:
    """One job; `vertices` beyond the seven of the small example hang in layers behind each other."""

    job_id: str = "7f3a1c9e5b2d4860a1b2c3d4e5f60718"
    name: str = "fraud detection"
    state: str = "RUNNING"
    vertex_count: int = len(NAMES)
    slot_count: int = 6
    checkpoint_count: int = 137
    parallelism: int = 4
    failed_once: bool = True
    steps: int = 0
    cancelled: bool = False
    savepoints: list[Json] = field(default_factory=list)
    pending: dict[str, int] = field(default_factory=dict)
    stops: list[Json] = field(default_factory=list)
    now_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def __post_init__(self) -> None:
        self.started = self.now_ms - 3 * 3_600_000 - 421_000

    def advance(self) -> None:
        """A second passes."""
        self.steps += 1
        self.now_ms += 1000
        if self.steps % 10 == 0 and self.state == "RUNNING":
            self.checkpoint_count += 1

    @property
    def now(self) -> int:
        return self.now_ms

    def vertex_id(self, i: int) -> str:
        return f"{i:032x}"

    def inputs(self, i: int) -> list[tuple[int, str]]:
        if i < len(NAMES):
            return EDGES.get(i, [])
        strategy = ("HASH", "FORWARD", "REBALANCE")[i % 3]
        return [(i - 5, strategy)] + ([(i - 7, "HASH")] if i % 4 == 0 else [])

    def vertex_name(self, i: int) -> str:
        return NAMES[i] if i < len(NAMES) else f"operator {i}: aggregate by region and hour"

    def overview(self) -> Json:
        return {
            "jid": self.job_id,
            "name": self.name,
            "state": self.state,
            "start-time": self.started,
            "end-time": -1 if self.running else self.now,
            "duration": self.now - self.started,
            "last-modification": self.now,
            "tasks": {
                "total": self.vertex_count * self.parallelism,
                "running": self.vertex_count * self.parallelism if self.running else 0,
            },
        }

    @property
    def running(self) -> bool:
        return self.state in ("RUNNING", "RESTARTING", "CANCELLING")

    def vertex(self, i: int) -> Json:
        read = 0 if i < 2 else 1_000_000 + self.steps * 4000 * (i + 1)
        rate = 0.0 if not self.running else 4000.0 * (1 + math.sin((self.steps + i) / 5) / 4)
        waits = 0.62 if i == 2 else 0.0 if i else 0.31
        busy = min(1 - waits, 0.94 if i == 3 else 0.15 + 0.08 * (i % 5))
        return {
            "id": self.vertex_id(i),
            "name": self.vertex_name(i),
            "maxParallelism": 128,
            "parallelism": self.parallelism,
            "status": "RUNNING" if self.running else self.state,
            "start-time": self.started,
            "end-time": -1,
            "duration": self.now - self.started,
            "tasks": {"RUNNING": self.parallelism},
            "metrics": {
                "read-bytes": read * 80,
                "write-bytes": read * 60,
                "read-records": read,
                "write-records": 1_000_000 + self.steps * 4000 * (i + 1),
                "records-in-per-second": None if i < 2 else rate,
                "records-out-per-second": rate * 0.9,
                "watermark": -(2**63) if i == 1 else self.now - 2300 - 400 * i,
                "state-bytes": None if i < 3 else 18_400_000 * (i + 1),
                "busy": None if i == 6 else busy,
                "backpressured": None if i == 6 else waits,
                "idle": None if i == 6 else 1 - busy - waits,
            },
        }

    def plan(self) -> Json:
        nodes = [
            {
                "id": self.vertex_id(i),
                "parallelism": self.parallelism,
                "operator": "",
                "operator_strategy": "",
                "description": self.vertex_name(i),
                **({"inputs": inputs} if inputs else {}),
                "optimizer_properties": {},
            }
            for i in range(self.vertex_count)
            for inputs in [
                [
                    {"num": n, "id": self.vertex_id(source), "ship_strategy": how, "exchange": "pipelined"}
                    for n, (source, how) in enumerate(self.inputs(i))
                ]
            ]
        ]
        return {"jid": self.job_id, "name": self.name, "type": "STREAMING", "nodes": nodes}

    def job(self) -> Json:
        whole = self.overview()
        del whole["last-modification"], whole["tasks"]
        return {
            **whole,
            "isStoppable": True,
            "job-type": "STREAMING",
            "maxParallelism": 128,
            "now": self.now,
            "timestamps": {"RUNNING": self.started},
            "vertices": [self.vertex(i) for i in range(self.vertex_count)],
            "status-counts": {"RUNNING": self.vertex_count},
            "plan": self.plan(),
            "latency-ms": 42.3 + self.steps % 7,
            "execution-mode": "continuous",
            "execution-mode-reason": "execution.mode is AUTO, and every source and sink can",
            "attempt": 2 if self.failed_once else 0,
            "restarts": 2 if self.failed_once else 0,
        }

    def checkpoint(self, cid: int, *, tasks: bool = False) -> Json:
        newest = cid == self.checkpoint_count
        failed = self.failed_once and cid % 50 == 40
        status = "IN_PROGRESS" if newest and self.running else "FAILED" if failed else "COMPLETED"
        subtasks = self.vertex_count * self.parallelism
        duration = 180 + (cid * 37) % 240 if not failed else 10_000
        triggered = self.now - (self.checkpoint_count - cid) * 10_000 - 1200
        found: Json = {
            "className": status.lower(),
            "id": cid,
            "status": status,
            "is_savepoint": cid % 60 == 55,
            "checkpoint_type": "SAVEPOINT" if cid % 60 == 55 else "CHECKPOINT",
            "trigger_timestamp": triggered,
            "latest_ack_timestamp": triggered + duration,
            "checkpointed_size": 1_203_456 + cid * 1000,
            "state_size": 331_203_456 + cid * 1000,
            "end_to_end_duration": duration,
            "sync_duration": 9,
            "async_duration": duration - 30,
            "alignment_duration": 12,
            "alignment_buffered": 0,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": subtasks,
            "num_acknowledged_subtasks": subtasks if status == "COMPLETED" else subtasks // 2,
            "tasks": {},
        }
        if status == "COMPLETED":
            found["external_path"] = f"file:/var/lib/tidemark/checkpoints/{self.job_id}/chk-{cid}"
            found["discarded"] = cid < self.checkpoint_count - 3
        if status == "FAILED":
            found["failure_timestamp"] = triggered + duration
            found["failure_message"] = "Checkpoint expired before completing: slot 3 did not answer in 10 s."
        if tasks:
            found["tasks"] = {self.vertex_id(i): self._task(cid, i) for i in range(self.vertex_count)}
        return found

    def _task(self, cid: int, i: int) -> Json:
        whole = self.checkpoint(cid)
        share = {
            name: whole[name]
            for name in ("id", "status", "latest_ack_timestamp", "end_to_end_duration", "alignment_buffered")
        }
        return {
            **share,
            "checkpointed_size": whole["checkpointed_size"] // self.vertex_count,
            "state_size": whole["state_size"] // self.vertex_count,
            "processed_data": 0,
            "persisted_data": 0,
            "num_subtasks": self.parallelism,
            "num_acknowledged_subtasks": self.parallelism if i < 4 or whole["status"] == "COMPLETED" else 0,
        }

    def checkpoint_subtasks(self, cid: int, vid: str) -> Json:
        task = self._task(cid, int(vid, 16))
        return {
            **task,
            "summary": {
                "state_size": _summary(1_000_000, 3_000_000),
                "checkpointed_size": _summary(10_000, 30_000),
                "end_to_end_duration": _summary(120, 320),
                "checkpoint_duration": {"sync": _summary(2, 9), "async": _summary(80, 300)},
                "alignment": {
                    "buffered": _summary(0, 0),
                    "processed": _summary(0, 0),
                    "persisted": _summary(0, 0),
                    "duration": _summary(1, 12),
                },
                "start_delay": _summary(3, 20),
            },
            "subtasks": [
                {
                    "index": i,
                    "status": "completed",
                    "ack_timestamp": task["latest_ack_timestamp"] - i,
                    "end_to_end_duration": 120 + i * 7,
                    "checkpointed_size": 12_000 + i,
                    "state_size": 1_200_000 + i,
                    "checkpoint": {"sync": 3, "async": 110 + i * 7},
                    "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 4},
                    "start_delay": 5,
                    "unaligned_checkpoint": False,
                    "aborted": False,
                }
                for i in range(self.parallelism)
            ],
        }

    def checkpoints(self, offset: int = 0, limit: int = 100) -> Json:
        first = self.checkpoint_count - offset
        history = [self.checkpoint(cid) for cid in range(first, max(0, first - limit), -1)]
        running = 1 if self.running and self.checkpoint_count else 0
        failed = [cid for cid in range(40, self.checkpoint_count, 50)] if self.failed_once else []
        done = self.checkpoint_count - running
        while done in failed or (done and done % 60 == 55):
            done -= 1
        latest: Json = {"completed": None, "savepoint": None, "failed": None, "restored": None}
        if done:
            latest["completed"] = self.checkpoint(done)
        if done > 55:
            latest["savepoint"] = self.checkpoint(done - (done - 55) % 60)
        if failed:
            latest["failed"] = self.checkpoint(failed[-1])
            latest["restored"] = {
                "id": failed[-1] - 1,
                "restore_timestamp": self.now - 900_000,
                "is_savepoint": False,
                "external_path": f"file:/var/lib/tidemark/checkpoints/{self.job_id}/chk-{failed[-1] - 1}",
            }
        return {
            "counts": {
                "restored": len(failed) and 1,
                "total": self.checkpoint_count,
                "in_progress": running,
                "completed": self.checkpoint_count - running - len(failed),
                "failed": len(failed),
            },
            "summary": {
                "checkpointed_size": _summary(1_203_456, 2_400_000),
                "state_size": _summary(301_203_456, 331_203_456),
                "end_to_end_duration": _summary(181, 419),
                "sync_duration": _summary(2, 9),
                "async_duration": _summary(150, 389),
                "alignment_duration": _summary(1, 12),
                "alignment_buffered": _summary(0, 0),
                "processed_data": _summary(0, 0),
                "persisted_data": _summary(0, 0),
            },
            "latest": latest,
            "history": history,
        }

    def checkpoint_config(self) -> Json:
        return {
            "mode": "exactly_once",
            "interval": 10_000,
            "timeout": 600_000,
            "min_pause": 500,
            "max_concurrent": 1,
            "externalization": {"enabled": True, "delete_on_cancellation": False},
            "state_backend": "rocksdb (incremental)",
            "checkpoint_storage": "file:/var/lib/tidemark/checkpoints",
            "unaligned_checkpoints": False,
            "tolerable_failed_checkpoints": 3,
            "aligned_checkpoint_timeout": 0,
            "checkpoints_after_tasks_finish": True,
        }

    def exceptions(self) -> Json:
        if not self.failed_once:
            return {
                "root-exception": None,
                "timestamp": None,
                "all-exceptions": [],
                "truncated": False,
                "exceptionHistory": {"entries": [], "truncated": False},
            }
        lost = "tidemark.errors.SlotLostError: slot 3 on worker-2 (pid 4211) did not answer for 50 s\n"
        entries = [
            ("KeyError", TRACEBACK, 900_000, "score (3/4)", "worker-2:4213", 3, 2),
            ("SlotLostError", lost, 7_200_000, "detect fraud (1/4)", "worker-2:4211", 1, 1),
        ]
        return {
            "root-exception": TRACEBACK,
            "timestamp": self.now - 900_000,
            "all-exceptions": [],
            "truncated": False,
            "exceptionHistory": {
                "truncated": False,
                "entries": [
                    {
                        "exceptionName": name,
                        "stacktrace": trace,
                        "timestamp": self.now - age,
                        "taskName": task,
                        "location": endpoint,
                        "taskManagerId": f"{self.job_id}-{slot}",
                        "attempt": attempt,
                        "failureLabels": {},
                        "concurrentExceptions": [],
                    }
                    for name, trace, age, task, endpoint, slot, attempt in entries
                ],
            },
        }

    def slots(self) -> list[Json]:
        share = 128 / max(1, self.slot_count)
        return [
            {
                "id": f"{self.job_id}-{i}",
                "path": f"tidemark://worker-{i // 3 + 1}:{4210 + i}",
                "job": self.job_id,
                "host": f"worker-{i // 3 + 1}",
                "pid": 4210 + i,
                "slot": i,
                "memory": 412_000_000 + i * 3_000_000,
                "cpu-seconds": 1200 + self.steps * (0.2 + 0.13 * (i % 5)),
                "age-ms": 400,
                "key-groups": {"score": [int(i * share), int((i + 1) * share) - 1]},
                "timeSinceLastHeartbeat": self.now - 400,
                "slotsNumber": 1,
                "freeSlots": 0,
            }
            for i in range(self.slot_count)
        ]

    def log(self, slot: str) -> str:
        lines = [
            f"2026-11-16 16:{i // 60:02}:{i % 60:02} INFO  [{slot}] epoch {i}: 4,000 records"
            for i in range(90)
        ]
        lines[60] = lines[60].replace("INFO ", "WARN ") + ", late by 3 s"
        return "\n".join(lines) + "\n"

    def vertex_details(self, vid: str) -> Json:
        i = int(vid, 16)
        return {
            "id": vid,
            "name": self.vertex_name(i),
            "parallelism": self.parallelism,
            "maxParallelism": 128,
            "now": self.now,
            "subtasks": [
                {
                    "subtask": n,
                    "status": "RUNNING",
                    "attempt": 1 if n == 2 else 0,
                    "endpoint": f"worker-{n // 3 + 1}:{4210 + n}",
                    "start-time": self.started,
                    "end-time": -1,
                    "duration": self.now - self.started,
                    "metrics": {
                        "read-records": 250_000 + n * 311 + self.steps * 900,
                        "write-records": 240_000 + n * 297 + self.steps * 850,
                    },
                    "taskmanager-id": f"{self.job_id}-{n}",
                }
                for n in range(self.parallelism)
            ],
        }

    def backpressure(self) -> Json:
        return {
            "status": "ok",
            "backpressureLevel": "low",
            "end-timestamp": self.now,
            "subtasks": [
                {
                    "subtask": n,
                    "backpressureLevel": "low",
                    "ratio": 0.1 * n,
                    "idleRatio": 0.3,
                    "busyRatio": 0.7 - 0.1 * n,
                }
                for n in range(self.parallelism)
            ],
        }

    def watermarks(self) -> list[Json]:
        return [
            {"id": f"{n}.currentInputWatermark", "value": str(self.now - 2400 - n * 300)}
            for n in range(self.parallelism)
        ]

    def states(self) -> Json:
        return {
            "operators": [
                {
                    "uid": "score",
                    "name": "score",
                    "states": [
                        {
                            "name": "history",
                            "kind": "map",
                            "type": "MAP(STRING, ROW(amount DOUBLE, at LONG))",
                            "ttl-ms": 604_800_000,
                            "queryable-name": None,
                            "entries": 1_284_113,
                            "bytes": 281_000_000,
                        },
                        {
                            "name": "count",
                            "kind": "value",
                            "type": "LONG",
                            "ttl-ms": None,
                            "queryable-name": "payments-by-card",
                            "entries": 402_118,
                            "bytes": 9_300_000,
                        },
                    ],
                },
                {
                    "uid": "detect",
                    "name": "detect fraud",
                    "states": [
                        {
                            "name": "rules",
                            "kind": "broadcast",
                            "type": "MAP(STRING, STRING)",
                            "ttl-ms": None,
                            "queryable-name": None,
                            "entries": None,
                            "bytes": None,
                        }
                    ],
                },
                {"uid": "alerts", "name": "alerts", "states": []},
            ]
        }

    def settings(self) -> Json:
        rows = [
            ("execution.checkpointing.interval", "10 s", "code", True, None),
            ("execution.checkpointing.dir", "file:/var/lib/tidemark/checkpoints", "file", True, None),
            ("state.backend.type", "rocksdb", "file", True, None),
            ("parallelism.default", "4", "environment", True, None),
            ("rest.token", "******", "environment", True, None),
            (
                "taskmanager.memory.process.size",
                "4g",
                "file",
                False,
                "Slots are Python processes of Spark's executors; set spark.executor.memoryOverhead.",
            ),
            ("queryable-state.enable", "true", "configuration", True, None),
            ("heartbeat.interval", "5 s", "default", True, None),
        ]
        return {
            "settings": [
                dict(zip(("key", "value", "layer", "effect", "reason"), row, strict=True)) for row in rows
            ]
        }

    def series(self) -> Json:
        points = 600
        at = range(self.steps, self.steps + points)
        return {
            "step-ms": 1000,
            "timestamps": [self.now - (points - 1 - i) * 1000 for i in range(points)],
            "records-in-per-second": [4000 + 900 * math.sin(i / 40) + 260 * math.sin(i * 1.7) for i in at],
            "records-out-per-second": [3100 + 700 * math.sin(i / 40) + 200 * math.sin(i * 1.3) for i in at],
            "latency-ms": [42 + 9 * math.sin(i / 23) + (i * 7919 % 13) for i in at],
            "checkpoint-duration-ms": [180 + (i // 10 * 37) % 240 if i % 10 == 0 else None for i in at],
            "checkpoint-bytes": [1_203_456 + (i // 10 * 7919) % 400_000 if i % 10 == 0 else None for i in at],
        }

    def trigger(self, directory: str | None) -> str:
        request = f"trigger-{len(self.pending)}"
        self.pending[request] = 2  # polls until it is there
        folder = (directory or "file:/var/lib/tidemark/savepoints").rstrip("/")
        self.savepoints.insert(
            0,
            {
                "id": request,
                "status": "IN_PROGRESS",
                "trigger-timestamp": self.now,
                "location": None,
                "failure-cause": None,
                "target": f"{folder}/savepoint-7f3a1c-{len(self.pending):012x}",
            },
        )
        return request

    def poll(self, request: str) -> Json | None:
        if request not in self.pending:
            return None
        self.pending[request] -= 1
        if self.pending[request] > 0:
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        savepoint = next(each for each in self.savepoints if each["id"] == request)
        savepoint.update(status="COMPLETED", location=savepoint["target"])
        return {"status": {"id": "COMPLETED"}, "operation": {"location": savepoint["location"]}}
