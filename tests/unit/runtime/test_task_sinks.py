"""Task side of sinks that want DataFrames: few rows travel with the report, many stay with Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemark import StreamExecutionEnvironment, Types
from tidemark.plan.job_plan import build_plan
from tidemark.plan.vertex import Vertex
from tidemark.protocol.reports import TaskReport
from tidemark.runtime.records import Records
from tidemark.runtime.sinks.task import SMALL_FRAME, DataFrameTaskSink, row_tag, small_tag


def sink_vertex() -> Vertex:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    stream.foreach_batch(lambda frame, epoch: None).name("sink")
    graph, settings, _caches = env._prepared("job")
    return next(v for v in build_plan(graph, settings, "0" * 32).vertices.values() if v.name == "sink")


def values_of(rows: list[tuple[str, bytes]]) -> list[Any]:
    tables = [pa.ipc.open_stream(payload).read_all() for _tag, payload in rows]
    return [tuple(row.values()) for table in tables for row in table.to_pylist()]


def test_few_rows_come_when_the_task_ends_under_a_tag_of_their_own() -> None:
    vertex, report = sink_vertex(), TaskReport(0, 0)
    sink = DataFrameTaskSink(vertex)

    sink.write(Records([("a", 1)]))
    sink.write(Records([("b", 2)]))
    early = sink.rows()
    sink.close(report)
    rows = sink.rows()

    assert early == []
    assert {tag for tag, _ in rows} == {small_tag(vertex.id)}
    assert values_of(rows) == [("a", 1), ("b", 2)]
    assert report.large_frames == set()


def test_many_rows_leave_the_task_as_they_come() -> None:
    vertex, report = sink_vertex(), TaskReport(0, 0)
    sink = DataFrameTaskSink(vertex)
    large = ("x" * SMALL_FRAME, 2)

    sink.write(Records([("a", 1)]))
    sink.write(Records([large]))
    at_once = sink.rows()
    sink.write(Records([("c", 3)]))
    later = sink.rows()
    sink.close(report)

    assert {tag for tag, _ in [*at_once, *later]} == {row_tag(vertex.id)}
    assert values_of(at_once) == [("a", 1), large]
    assert values_of(later) == [("c", 3)]
    assert sink.rows() == []
    assert report.large_frames == {vertex.id}


def test_a_task_without_rows_sends_none() -> None:
    report = TaskReport(0, 0)
    sink = DataFrameTaskSink(sink_vertex())

    sink.close(report)

    assert sink.rows() == []
    assert report.large_frames == set()
