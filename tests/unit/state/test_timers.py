from __future__ import annotations

from typing import Any

import pytest

from tidemark.errors import StateMigrationException, UnsupportedOperationException
from tidemark.state import canonical
from tidemark.state.backend import NO_KEY, KeyContext
from tidemark.state.namespace import NamespaceKind
from tidemark.state.serializers import serializer_for
from tidemark.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, InternalTimers
from tidemark.types.typeinfo import Types


class Timers:
    """Timers with a current key that is set by each call."""

    def __init__(self, key_type: Any = None, namespace: NamespaceKind = NamespaceKind.VOID) -> None:
        self.context = KeyContext()
        serializer = serializer_for(key_type or Types.STRING())
        self.inner = InternalTimers(self.context, 128, serializer, namespace)

    def event(self, key: Any, *times: int) -> None:
        self.context.token = key
        for time in times:
            self.inner.register_event_timer(time)

    def processing(self, key: Any, *times: int) -> None:
        self.context.token = key
        for time in times:
            self.inner.register_processing_timer(time)

    def fired(self, watermark: int) -> list[tuple[int, Any]]:
        return [(time, token) for time, token, _ in self.inner.advance_event(watermark)]


def test_timers_fire_in_time_order_up_to_the_watermark() -> None:
    timers = Timers()
    timers.event("a", 30, 10)
    timers.event("b", 20, 40)

    assert timers.fired(9) == []
    assert timers.fired(30) == [(10, "a"), (20, "b"), (30, "a")]
    assert timers.fired(100) == [(40, "b")]
    assert timers.fired(200) == []


def test_a_time_is_registered_once_per_key() -> None:
    timers = Timers()
    timers.event("a", 10, 10)
    timers.event("b", 10, 10)
    timers.event("a", 10)

    assert len(timers.inner._event) == 2
    assert sorted(timers.fired(10)) == [(10, "a"), (10, "b")]


def test_deleting_concerns_the_current_key_and_that_time_only() -> None:
    timers = Timers()
    for key in "abc":
        timers.event(key, 10, 20)
    timers.context.token = "b"

    timers.inner.delete_event_timer(10)
    timers.inner.delete_event_timer(11)
    timers.inner.delete_processing_timer(20)

    assert sorted(timers.fired(10)) == [(10, "a"), (10, "c")]
    assert sorted(timers.fired(20)) == [(20, "a"), (20, "b"), (20, "c")]


def test_the_last_timer_of_a_time_can_be_deleted_and_registered_again() -> None:
    timers = Timers()
    timers.event("a", 10)
    timers.inner.delete_event_timer(10)
    assert timers.inner._event.first_time() is None

    timers.event("a", 10)

    assert timers.fired(10) == [(10, "a")]


def test_a_timer_behind_the_watermark_fires_at_the_next_advance() -> None:
    timers = Timers()
    assert timers.fired(100) == []
    timers.event("a", 50)

    assert timers.fired(100) == []
    assert timers.fired(101) == [(50, "a")]


def test_timers_registered_behind_the_watermark_while_firing_wait() -> None:
    timers = Timers()
    timers.event("a", 10, 20)
    seen = []

    for time, token, _ in timers.inner.advance_event(20):
        seen.append(time)
        timers.event(token, time, 15, 30)

    assert seen == [10, 20]
    assert timers.fired(21) == [(10, "a"), (15, "a"), (20, "a")]
    assert timers.fired(30) == [(30, "a")]


def test_timers_deleted_while_firing_do_not_fire() -> None:
    timers = Timers()
    for key in "abc":
        timers.event(key, 10)
    timers.event("a", 20)
    seen = []

    for time, token, _ in timers.inner.advance_event(20):
        seen.append((time, token))
        for key in "abc":
            timers.context.token = key
            timers.inner.register_event_timer(5)
            timers.inner.delete_event_timer(5)
            timers.inner.delete_event_timer(10)
            timers.inner.delete_event_timer(20)

    assert len(seen) == 1
    assert len(timers.inner._event) == 0


def test_late_timers_are_kept_when_a_callback_fails() -> None:
    timers = Timers()
    timers.event("a", 10)
    due = timers.inner.advance_event(10)
    next(due)
    timers.event("a", 5)

    due.close()

    assert timers.fired(11) == [(5, "a")]


def test_processing_timers_registered_in_the_past_fire_in_the_same_round() -> None:
    timers = Timers()
    timers.processing("a", 10)
    seen = []

    for time, token, _ in timers.inner.advance_processing(100):
        seen.append(time)
        if len(seen) < 3:
            timers.processing(token, time - 1)

    assert seen == [10, 9, 8]
    timers.processing("a", 200)
    assert timers.inner.next_processing_time() == 200
    assert list(timers.inner.advance_processing(199)) == []


def test_the_next_processing_time_skips_deleted_timers() -> None:
    timers = Timers()
    timers.processing("a", 10, 20)
    timers.inner.delete_processing_timer(10)

    assert timers.inner.next_processing_time() == 20
    timers.inner.drop_processing()
    assert timers.inner.next_processing_time() is None


def test_many_deleted_times_do_not_stay_in_the_heap() -> None:
    timers = Timers()
    for time in range(10_000):
        timers.processing("a", time + 1_000_000)
        timers.inner.delete_processing_timer(time + 999_999)

    assert len(timers.inner._processing._times) < 200
    assert timers.inner.next_processing_time() == 1_009_999


def test_whether_something_is_due() -> None:
    timers = Timers()
    timers.event("a", 10)

    assert not timers.inner.has_due_event(9)
    assert timers.inner.has_due_event(10)


def test_timers_need_a_current_key() -> None:
    timers = Timers()
    timers.context.token = NO_KEY

    for call in (timers.inner.register_event_timer, timers.inner.delete_processing_timer):
        with pytest.raises(UnsupportedOperationException, match="keyed"):
            call(1)


@pytest.mark.parametrize("key_type", [Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
@pytest.mark.parametrize(("piece", "whole_bytes"), [(2048, 1 << 30), (3, 1 << 30), (3, 10)])
def test_timers_survive_a_snapshot(
    key_type: Any, piece: int, whole_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canonical, "_PIECE_ROWS", piece)
    monkeypatch.setattr(canonical, "_MAX_WHOLE_BYTES", whole_bytes)
    timers = Timers(key_type, NamespaceKind.WINDOW)
    serializer = serializer_for(key_type)
    tokens = [f"k{i}" if serializer.identity_key else serializer.key_bytes(f"k{i}") for i in range(50)]
    for number, token in enumerate(tokens):
        timers.context.token = token
        timers.inner.register_event_timer(number % 7, (0, number))
        timers.inner.register_processing_timer(number, (number, number))

    tables = timers.inner.cut()
    for _ in timers.inner.advance_event(100):
        pass
    timers.event(tokens[0], 5000)
    content = [(table.meta, list(table.batches())) for table in tables]

    assert [meta.name for meta, _ in content] == [EVENT_TIMERS, PROCESSING_TIMERS]
    restored = Timers(key_type, NamespaceKind.WINDOW)
    for meta, batches in content:
        groups = [group for batch in batches for group in batch.column("key_group").to_pylist()]
        assert groups == sorted(groups)
        restored.inner.restore_table(meta, batches)
    fired = list(restored.inner.advance_event(100))
    assert sorted(fired) == sorted((n % 7, token, (0, n)) for n, token in enumerate(tokens))
    assert [time for time, _, _ in fired] == sorted(time for time, _, _ in fired)
    assert len(list(restored.inner.advance_processing(100))) == 50


def test_cuts_are_folded_back_when_they_have_been_read() -> None:
    timers = Timers()
    timers.event("a", 10)
    timers.event("b", 10)
    tables = timers.inner.cut()
    timers.event("c", 10)
    timers.context.token = "a"
    timers.inner.delete_event_timer(10)

    assert sum(batch.num_rows for batch in tables[0].batches()) == 2
    timers.fired(9)

    assert not timers.inner._event._due.frozen
    assert sorted(timers.fired(10)) == [(10, "b"), (10, "c")]


def test_restored_timers_need_the_same_key_type() -> None:
    timers = Timers(Types.STRING())
    timers.event("a", 1)
    [table, _] = timers.inner.cut()

    with pytest.raises(StateMigrationException, match="key"):
        Timers(Types.LONG()).inner.restore_table(table.meta, table.batches())
