"""Sessions do not depend on how records come in batches, nor on the way through the operator."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaign import examples

from tidemark.api.output_tag import OutputTag
from tidemark.api.specs import WindowSpec
from tidemark.api.windows.sessions import EventTimeSessionWindows
from tidemark.backends.heap import HeapKeyedStateBackend
from tidemark.clock import ManualClock
from tidemark.metrics.registry import MetricRegistry
from tidemark.operators.base import OperatorEnvironment, Output
from tidemark.operators.merging_windows import session_runs
from tidemark.operators.window import WindowOperator
from tidemark.plan.vertex import SubtaskInfo
from tidemark.protocol.batch import MAX_WATERMARK, Batch
from tidemark.state.backend import BackendParameters
from tidemark.types.typeinfo import Types

LATE = OutputTag("late")
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 2), st.integers(0, 120)),
        st.tuples(st.just("batch"), st.just(0), st.just(0)),
        st.tuples(st.just("watermark"), st.just(0), st.integers(0, 120)),
    ),
    max_size=40,
)


class Contents:
    """A window function that tells everything about its window."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, context.window().end, sorted(elements)


def operator(lateness: int, gap: Any, *, plain: bool) -> Any:
    assigner = (
        EventTimeSessionWindows.with_gap(gap)
        if isinstance(gap, int)
        else EventTimeSessionWindows.with_dynamic_gap(gap)
    )
    made: Any = WindowOperator(
        WindowSpec(
            assigner,
            allowed_lateness=lateness,
            late_tag=LATE,
            window_function=Contents(),
            function_kind="process",
        ),
        Types.LONG(),
    )
    clock = ManualClock()
    made.setup(
        OperatorEnvironment(
            SubtaskInfo("op", "op"),
            clock,
            MetricRegistry().group("op"),
            lambda serializer: HeapKeyedStateBackend(BackendParameters(serializer, 128, (0, 127), clock)),
        )
    )
    made.initialize(None)
    made.open()
    made._plain_windows = plain
    return made


def play(made: Any, events: list[tuple[str, int, int]]) -> list[Any]:
    """What comes out of each batch and watermark, as sorted lists."""
    out, steps, waiting = Output(), [], []

    def flush() -> None:
        if waiting:
            stamps = [stamp for _, stamp in waiting]
            made.process(0, Batch(list(range(len(waiting))), stamps, [key for key, _ in waiting]), out)
            waiting.clear()

    for kind, key, number in [*events, ("watermark", 0, MAX_WATERMARK)]:
        if kind == "record":
            waiting.append((key, number))
            continue
        flush()
        if kind == "watermark":
            made.advance_watermark(number, out)
        main, sides = out.drain()
        late = sides.get(LATE.tag_id)
        steps.append((sorted(main.values), sorted(late.values) if late else []))
    made.close()
    return steps


@settings(max_examples=examples(150))
@given(EVENTS, st.sampled_from([0, 15]), st.sampled_from([10, lambda value: 5 + 7 * (value % 3)]))
def test_merging_a_batch_first_gives_the_same_sessions(events: Any, lateness: int, gap: Any) -> None:
    fast = play(operator(lateness, gap, plain=True), events)
    slow = play(operator(lateness, gap, plain=False), events)

    assert fast == slow


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=30))
def test_runs_are_the_connected_pieces_of_the_sessions(sessions: list[tuple[int, int]]) -> None:
    elements = [(at, start, start + gap) for at, (start, gap) in enumerate(sessions)]

    runs = session_runs(elements)

    expected: list[list[Any]] = []
    for at, start, end in sorted(elements, key=lambda element: element[1]):
        if expected and start <= expected[-1][1]:
            expected[-1][1] = max(end, expected[-1][1])
            expected[-1][2].append(at)
        else:
            expected.append([start, end, [at]])
    assert sorted((s, e, sorted(v)) for s, e, v in runs) == [(s, e, sorted(v)) for s, e, v in expected]
