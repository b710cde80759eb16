from __future__ import annotations

from typing import Any

import pytest

from tidemark.errors import IllegalStateError
from tidemark.state.layers import FrozenView, KeyMark, LayeredDict


def content(view: FrozenView) -> dict[Any, Any]:
    return {at: value for piece in view.pieces(2) for at, value in zip(*piece, strict=True)}


def test_a_view_shows_the_moment_it_was_taken() -> None:
    table = LayeredDict()
    table.put("a", 1)
    table.put("b", 2)

    view = table.freeze()
    table.put("a", 10)
    table.remove("b")
    table.put("c", 3)

    assert content(view) == {"a": 1, "b": 2}
    assert dict(table.items()) == {"a": 10, "c": 3}
    assert [table.get(at) for at in "abc"] == [10, None, 3]
    assert len(table) == 2


def test_released_views_are_folded_into_one_dictionary_again() -> None:
    table = LayeredDict()
    table.put("a", 1)
    table.put("b", 2)
    view = table.freeze()
    table.put("a", 10)
    table.remove("b")

    table.fold()
    assert table.frozen
    view.release()
    table.fold()

    assert not table.frozen
    assert table.live == {"a": 10}
    assert not table.has_views


def test_a_deleted_address_can_be_written_again() -> None:
    table = LayeredDict()
    table.put("a", 1)
    first = table.freeze()
    table.remove("a")
    second = table.freeze()
    table.put("a", 2)
    third = table.freeze()
    table.remove("a")

    assert table.get("a") is None
    assert [content(view) for view in (first, second, third)] == [{"a": 1}, {}, {"a": 2}]
    for view in (second, first, third):
        view.release()
        table.fold()
    assert table.live == {}


def test_the_number_of_layers_stays_small_while_views_are_pending() -> None:
    table = LayeredDict()
    views = []
    for number in range(20):
        table.put(number % 3, number)
        table.remove((number + 1) % 3)
        views.append(table.freeze())

    assert len(table.frozen) <= 5
    assert [content(view) for view in views[-2:]] == [{0: 18, 2: 17}, {0: 18, 1: 19}]
    assert dict(table.items()) == {0: 18, 1: 19}


def test_values_are_copied_before_they_are_changed_in_place() -> None:
    table = LayeredDict()
    table.put("a", [1])
    view = table.freeze()

    table.get_own("a", list).append(2)

    assert content(view) == {"a": [1]}
    assert table.get("a") == [1, 2]
    assert table.get_own("b", list) is None


def test_a_forgotten_view_counts_as_released() -> None:
    table = LayeredDict()
    table.put("a", 1)
    view = table.freeze()

    del view
    table.fold()

    assert not table.frozen


def test_a_released_view_refuses_to_be_read() -> None:
    view = LayeredDict().freeze()
    view.release()

    with pytest.raises(IllegalStateError):
        content(view)


def test_unchanged_content_is_frozen_once() -> None:
    table = LayeredDict()
    table.put("a", 1)

    first, second = table.freeze(), table.freeze()

    assert len(table.frozen) == 1
    assert content(first) == content(second) == {"a": 1}


def test_a_view_gives_the_addresses_behind_those_that_are_known() -> None:
    table = LayeredDict()
    for at in "cab":
        table.put(at, 1)
    table.put("c", 2)

    view = table.freeze()

    assert view.mark == KeyMark(removals=0, entries=3)
    assert [view.addresses_from(start) for start in range(4)] == [["c", "a", "b"], ["a", "b"], ["b"], []]
    assert list(view.values(2)) == [[2, 1], [1]]


def test_removals_are_part_of_the_mark_and_a_second_pending_cut_has_none() -> None:
    table = LayeredDict()
    table.put("a", 1)
    table.remove("a")
    table.put("a", 1)

    first = table.freeze()
    table.put("b", 1)

    assert first.mark == KeyMark(removals=1, entries=1)
    assert table.freeze().mark is None
