"""The metrics of all running jobs in Prometheus' text format, with the names and labels of Flink's reporter.

`flink_jobmanager_job_*` are about a job, `flink_taskmanager_job_task_*` about a subtask,
`flink_taskmanager_job_task_operator_*` are the metrics of users' functions and of RocksDB. Counters start again with
an attempt, as Prometheus expects of a process that restarts, and never go back within one; work that is done twice is
counted twice, and `flink_jobmanager_job_numRecordsReplayed` says how much of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidemark.web.facts import JobFacts, SubtaskFacts, VertexFacts, slot_id
from tidemark.web.metric_values import (
    job_metrics,
    slot_metrics,
    subtask_metrics,
    user_values,
    vertex_subtasks,
)
from tidemark.web.view import JobView

__all__ = ["MEDIA_TYPE", "exposition"]

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_:]")

Labels = Mapping[str, str]


class _Families:
    """Samples by metric, in the order in which metrics came up."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._families: dict[str, list[str]] = {}
        self._metrics: dict[tuple[str, str], str] = {}

    def add(self, scope: str, name: str, labels: str, value: Any) -> None:
        """Take a sample; `labels` are those of `_rendered`, once for all metrics of one thing."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        metric = self._metrics.get((scope, name))
        if metric is None:
            metric = _legal(f"{self._prefix}_{scope}_{name}")
            metric = self._metrics[scope, name] = f"_{metric}" if metric[0].isdigit() else metric
        self._families.setdefault(metric, []).append(f"{metric}{labels} {_number(value)}")

    def text(self) -> str:
        lines = []
        for metric, samples in self._families.items():
            # Counters too, as in Flink's reporter: readers would add `_total` to the name of a counter.
            lines += [f"# TYPE {metric} gauge", *samples]
        return "\n".join([*lines, ""])


def exposition(views: Iterable[JobView], prefix: str) -> str:
    """All metrics; `prefix` stands where Flink says `flink`."""
    families = _Families(prefix)
    processes: set[tuple[str, int]] = set()
    for view in views:
        job = view.facts()
        if job.is_live:
            _add_job(families, view, job)
            if (job.host, job.pid) not in processes:
                processes.add((job.host, job.pid))
                _add_process(families, job)
    return families.text()


def _add_process(families: _Families, job: JobFacts) -> None:
    """The driver itself, once for all its jobs; Flink has one job manager on a host, we may have several drivers."""
    labels = _rendered({"host": job.host, "pid": str(job.pid)})
    families.add("jobmanager", "Status_JVM_Memory_Heap_Used", labels, job.rss)
    families.add("jobmanager", "Status_JVM_CPU_Time", labels, round(job.cpu_s * 1e9))


def _add_job(families: _Families, view: JobView, job: JobFacts) -> None:
    labels = _rendered({"host": job.host, "job_id": job.job_id, "job_name": job.name})
    for name, value in job_metrics(job, view.checkpoints()).items():
        families.add("jobmanager_job", name, labels, value)
    for name, value in job.query_statistics.items():
        families.add("jobmanager_job_queryableState", name, labels, value)
    for slot in job.slots:
        own = _rendered({"host": slot.host, "tm_id": slot_id(job.job_id, slot.index)})
        for name, value in slot_metrics(slot).items():
            families.add("taskmanager", name, own, value)
        for name, value in slot.query_statistics.items():
            families.add("taskmanager_queryableState", name, own, value)
    tasks: dict[tuple[str, int], Labels] = {}
    for vertex in job.vertices:
        for subtask in vertex_subtasks(vertex):
            task = tasks[vertex.name, subtask.index] = _task_labels(job, vertex, subtask)
            own = _rendered(task)
            for name, value in subtask_metrics(subtask).items():
                families.add("taskmanager_job_task", name, own, value)
            operator = _rendered(_operator_labels(task, vertex)) if subtask.native else ""
            for name, value in subtask.native.items():
                families.add("taskmanager_job_task_operator", f"rocksdb_{name}", operator, value)
    _add_user_metrics(families, job, tasks)


def _add_user_metrics(families: _Families, job: JobFacts, tasks: Mapping[tuple[str, int], Labels]) -> None:
    seen: set[tuple[str, str]] = set()
    by_name = sorted(job.vertices, key=lambda vertex: -len(vertex.name))
    for slot, path, value in job.user_metrics:
        vertex = next((v for v in by_name if path.startswith(v.name + ".")), None)
        if vertex is None:
            continue
        found = tasks.get((vertex.name, slot or 0)) or _task_labels(job, vertex, SubtaskFacts(slot or 0))
        labels = _rendered(_operator_labels(found, vertex))
        for name, number in user_values(path.removeprefix(vertex.name + "."), value).items():
            # Prometheus refuses a page on which a sample is there twice; `a.b` and `a_b` are one name for it.
            place = (_legal(name), labels)
            if place not in seen:
                seen.add(place)
                families.add("taskmanager_job_task_operator", name, labels, number)


def _task_labels(job: JobFacts, vertex: VertexFacts, subtask: SubtaskFacts) -> Labels:
    return {
        "host": subtask.host or job.host,
        "tm_id": slot_id(job.job_id, subtask.index) if vertex.in_slots else "",
        "job_id": job.job_id,
        "job_name": job.name,
        "task_id": vertex.id,
        "task_name": vertex.name,
        "task_attempt_num": str(job.attempt),
        "subtask_index": str(subtask.index),
    }


def _operator_labels(task: Labels, vertex: VertexFacts) -> Labels:
    return {**task, "operator_id": vertex.id, "operator_name": vertex.name}


def _rendered(labels: Labels) -> str:
    return "{" + ",".join([f'{key}="{_escaped(label)}"' for key, label in labels.items()]) + "}"


def _legal(name: str) -> str:
    return _ILLEGAL.sub("_", name)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(value)
