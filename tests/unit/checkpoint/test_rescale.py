from __future__ import annotations

import pytest

from tidemark.checkpoint.layout import savepoint_location
from tidemark.checkpoint.metadata import CheckpointMetadata, OperatorState, SubtaskState
from tidemark.checkpoint.rescale import map_operators, plan_restore, resolve_max_parallelism
from tidemark.errors import ConfigError, IllegalStateError, MaxParallelismError, UnmappedStateError
from tidemark.state.snapshot import OperatorStatePart, Redistribution

FULL = SubtaskState(0, operator=(OperatorStatePart("l", Redistribution.SPLIT, (b"x",)),))


def operator(uid: str, *subtasks: SubtaskState, max_parallelism: int = 128) -> OperatorState:
    return OperatorState(uid, uid.upper(), len(subtasks), max_parallelism, subtasks)


def metadata(*operators: OperatorState, **facts: object) -> CheckpointMetadata:
    return CheckpointMetadata(5, 0, "ab" * 16, operators=operators, **facts)


def test_operators_are_matched_by_uid() -> None:
    a, b = operator("a", FULL), operator("b", FULL)

    assert map_operators(metadata(a, b), ["b", "a", "new"]) == {"a": a, "b": b}


def test_state_nobody_claims_is_an_error_that_names_it() -> None:
    with pytest.raises(UnmappedStateError, match=r"'gone' \(GONE\).*-n") as caught:
        map_operators(metadata(operator("a", FULL), operator("gone", FULL)), {"a"})

    assert isinstance(caught.value, IllegalStateError)
    assert caught.value.operator_uids == ("gone",)


@pytest.mark.parametrize("facts", [{"source_positions": {"s": b"1"}}, {"sink_commits": {"s": b"1"}}])
def test_positions_and_prepared_output_are_state_too(facts: dict[str, object]) -> None:
    with pytest.raises(UnmappedStateError, match="'s'"):
        map_operators(metadata(**facts), {"a"})

    assert map_operators(metadata(**facts), {"s"}) == {}


def test_state_nobody_claims_can_be_dropped_on_request() -> None:
    a = operator("a", FULL)

    assert map_operators(metadata(a, operator("gone", FULL)), {"a"}, allow_non_restored_state=True) == {
        "a": a
    }


def test_an_operator_without_state_may_go() -> None:
    assert map_operators(metadata(operator("gone", SubtaskState(0, (0, 127)))), {"a"}) == {}


def test_the_number_of_key_groups_is_adopted() -> None:
    old = operator("a", SubtaskState(0, (0, 63)), max_parallelism=64)

    assert resolve_max_parallelism(old, 2, None, 128) == 64
    assert resolve_max_parallelism(old, 2, 64, 128) == 64


def test_another_number_of_key_groups_is_refused() -> None:
    old = operator("a", SubtaskState(0, (0, 63)), max_parallelism=64)

    with pytest.raises(MaxParallelismError, match=r"set to 256.*64 key groups") as caught:
        resolve_max_parallelism(old, 2, 256, 128)

    assert isinstance(caught.value, IllegalStateError)
    assert (caught.value.restored, caught.value.requested) == (64, 256)


def test_without_keyed_state_the_setting_or_the_default_counts() -> None:
    assert resolve_max_parallelism(None, 2, None, 128) == 128
    assert resolve_max_parallelism(None, 2, 200, 128) == 200
    assert resolve_max_parallelism(operator("a", FULL), 2, 200, 128) == 200


def test_more_subtasks_than_key_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Parallelism 65 exceeds the maximum parallelism 64 of .* 'a'"):
        resolve_max_parallelism(operator("a", SubtaskState(0, (0, 63)), max_parallelism=64), 65, None, 128)
    with pytest.raises(ValueError, match="Parallelism 3 exceeds"):
        resolve_max_parallelism(None, 3, 2, 128)


def test_operator_state_is_redistributed_in_order_of_subtasks() -> None:
    def part(*elements: bytes) -> tuple[OperatorStatePart, ...]:
        return (
            OperatorStatePart("split", Redistribution.SPLIT, elements),
            OperatorStatePart("union", Redistribution.UNION, elements),
        )

    subtasks = [
        SubtaskState(2, operator=part(b"d", b"e")),
        SubtaskState(0, operator=part(b"a", b"b")),
        SubtaskState(1, operator=part(b"c")),
    ]
    old = operator("a", *subtasks)

    plans = plan_restore(old, metadata(old), savepoint_location("/sp"), 2)

    found = [{p.name: p.elements for p in plan.operator} for plan in plans]
    everything = (b"a", b"b", b"c", b"d", b"e")
    assert found == [
        {"split": (b"a", b"b", b"c"), "union": everything},
        {"split": (b"d", b"e"), "union": everything},
    ]
    assert [plan.key_groups for plan in plans] == [None, None]
    assert [(plan.uid, plan.index, plan.checkpoint_id) for plan in plans] == [("a", 0, 5), ("a", 1, 5)]
