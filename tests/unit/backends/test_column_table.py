"""Tables by column: a cut shows what was there at the barrier, whatever is done to the table afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark import Types
from tidemark.backends.columns.key_index import index_for
from tidemark.backends.columns.table import ColumnTable, ColumnView
from tidemark.backends.table import ABSENT
from tidemark.errors import IllegalStateError
from tidemark.state.key_tokens import KeyTokens
from tidemark.state.serializers.registry import serializer_for

LONG = serializer_for(Types.LONG())
STRING = serializer_for(Types.STRING())


def rows_of(table: ColumnTable, *keys: int) -> Any:
    return table.index.rows(pa.array(keys, pa.int64()))[0]


def put(table: ColumnTable, content: dict[int, Any], now: int = 0) -> None:
    values = pa.array(list(content.values()), table.kind.serializer.arrow_type())
    table.scatter(rows_of(table, *content), table.kind.split(values), now)


def filled(content: dict[int, Any], serializer: Any = LONG, ttl: bool = False) -> ColumnTable:
    table = ColumnTable(index_for(KeyTokens(LONG)), serializer, ttl)
    put(table, content)
    return table


def shown(view: ColumnView, table: ColumnTable, **bounds: Any) -> dict[int, Any]:
    keys, parts, _stamps = view.rows(bounds.pop("dead_before", None), **bounds)
    return dict(zip(keys.tolist(), table.kind.join(parts).to_pylist(), strict=True))


def grow(table: ColumnTable) -> None:
    put(table, dict.fromkeys(range(100, 101 + table.index.capacity), 9))


CHANGES: dict[str, Callable[[ColumnTable], None]] = {
    "written over": lambda table: put(table, {1: 99}),
    "a new key": lambda table: put(table, {7: 70}),
    "dropped": lambda table: table.drop(rows_of(table, 1)),
    "restored over": lambda table: table.restore(rows_of(table, 1), [np.array([99])], np.array([5])),
    "grown": grow,
    "grown, then written over": lambda table: (grow(table), put(table, {1: 99}))[0],
    "compacted": lambda table: (table.keep(np.array([1])), table.index.keep(np.array([1])))[0],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_cut_shows_what_was_there_at_the_barrier(change: str) -> None:
    table = filled({1: 10, 2: 20})
    view = table.freeze()

    CHANGES[change](table)

    assert shown(view, table) == {1: 10, 2: 20}


def test_texts_that_are_dropped_stay_in_the_cut() -> None:
    table = filled({1: "one", 2: "two"}, STRING)
    view = table.freeze()

    table.drop(rows_of(table, 1))

    assert shown(view, table) == {1: "one", 2: "two"}
    assert shown(table.freeze(), table) == {2: "two"}


def test_a_later_access_keeps_nothing_alive_in_the_cut() -> None:
    table = filled({1: 10, 2: 20}, ttl=True)
    view = table.freeze()

    table.stamp(rows_of(table, 1), 1_000)

    assert shown(view, table, dead_before=0) == {}
    assert shown(table.freeze(), table, dead_before=0) == {1: 10}


def test_each_of_several_pending_cuts_shows_its_own_barrier() -> None:
    table = filled({1: 10})
    first, again = table.freeze(), table.freeze()
    put(table, {1: 11})
    second = table.freeze()
    first.release()
    put(table, {1: 12})

    assert shown(again, table) == {1: 10}
    assert shown(second, table) == {1: 11}
    assert shown(table.freeze(), table) == {1: 12}


def test_an_older_cut_that_is_let_go_takes_nothing_from_a_younger_one() -> None:
    table = filled({1: 10})
    older, younger = table.freeze(), table.freeze()

    older.release()
    put(table, {1: 11})

    assert shown(younger, table) == {1: 10}


@pytest.mark.parametrize("let_go", ["released", "forgotten"])
def test_a_cut_that_nobody_reads_any_more_costs_no_copy(let_go: str) -> None:
    table = filled({1: 10})
    view = table.freeze()
    before = table.parts[0]

    if let_go == "released":
        view.release()
    del view
    put(table, {1: 11})

    assert table.parts[0] is before


def test_a_pending_cut_costs_one_copy_however_often_is_written() -> None:
    table = filled({1: 10})
    view = table.freeze()

    put(table, {1: 11})
    copied = table.parts[0]
    put(table, {1: 12})

    assert table.parts[0] is copied
    assert shown(view, table) == {1: 10}


def test_what_changed_behind_a_cut_is_what_was_written_and_dropped_since() -> None:
    table = filled({1: 10, 2: 20, 3: 30})
    table.track(5)
    put(table, {2: 21})
    table.drop(rows_of(table, 3))
    before = table.freeze()
    table.track(6)
    put(table, {1: 11})

    view = table.freeze()

    assert shown(before, table, since=5) == {2: 21}
    assert before.removed(5).tolist() == [3]
    assert shown(view, table, since=5) == {1: 11, 2: 21}
    assert shown(view, table, since=6) == {1: 11}
    assert view.removed(6).tolist() == []
    assert table.changed_behind == 6
    assert sorted(table.changed_rows(6).tolist()) == sorted(rows_of(table, 1).tolist())


def test_a_cut_that_was_let_go_is_not_read() -> None:
    table = filled({1: 10})
    table.track(1)
    view = table.freeze()
    view.release()

    with pytest.raises(IllegalStateError, match="released"):
        view.rows(None)
    with pytest.raises(IllegalStateError, match="released"):
        view.removed(1)


def test_rows_that_are_kept_keep_values_stamps_and_what_is_known_of_their_changes() -> None:
    table = filled({1: 10, 2: 20, 3: 30}, ttl=True)
    table.track(5)
    put(table, {3: 31}, now=7)
    kept = rows_of(table, 3, 2)

    table.keep(kept)
    table.index.keep(kept)

    assert [table.unit(row) for row in rows_of(table, 3, 2)] == [(31, 7), (20, 0)]
    assert table.num_entries() == 2
    assert shown(table.freeze(), table, since=5) == {3: 31}


def test_a_table_that_grows_keeps_stamps_and_what_is_known_of_changes() -> None:
    table = filled({1: 10, 2: 20}, ttl=True)
    table.track(5)
    put(table, {1: 11}, now=7)
    table.track(6)

    grow(table)

    view = table.freeze()
    assert [table.unit(row) for row in rows_of(table, 1, 2)] == [(11, 7), (20, 0)]
    assert set(shown(view, table, since=5)) - set(shown(view, table, since=6)) == {1}


def test_only_rows_in_question_that_are_expired_are_dropped() -> None:
    table = filled({1: 10, 2: 20, 3: 30}, ttl=True)
    for key, now in ((1, 5), (2, 6), (3, 4)):
        table.stamp(rows_of(table, key), now)
    [last] = rows_of(table, 3).tolist()

    table.drop_expired(0, last, 5)
    assert shown(table.freeze(), table) == {2: 20, 3: 30}

    table.drop_expired(last, 1_000_000, 5)
    assert shown(table.freeze(), table) == {2: 20}


def test_a_row_without_a_value_is_absent() -> None:
    table = filled({1: 10})
    [row] = rows_of(table, 1).tolist()
    assert table.unit(row) == 10

    table.drop(rows_of(table, 1))

    assert [table.unit(at) for at in (row, -1, len(table.present))] == [ABSENT] * 3


def test_rows_that_are_new_since_the_last_write_can_be_looked_at() -> None:
    table = filled({1: 10})
    rows = rows_of(table, *range(100, 101 + table.index.capacity))

    assert [len(part) for part in table.gather(rows)] == [len(rows)]
    assert not table.held(rows).any()


def test_restored_values_have_the_stamps_they_come_with() -> None:
    table = filled({1: 10}, ttl=True)

    table.restore(rows_of(table, 1, 2), [np.array([11, 12])], np.array([5, 6]))

    assert [table.unit(row) for row in rows_of(table, 1, 2)] == [(11, 5), (12, 6)]


def test_dropped_objects_are_let_go() -> None:
    table = filled({1: "one"}, STRING)

    table.drop(rows_of(table, 1))

    assert all(part[rows_of(table, 1)].tolist() == [None] for part in table.parts if part.dtype.kind == "O")


def test_a_table_that_no_incremental_cut_follows_knows_of_no_changes() -> None:
    assert filled({1: 10}).changed_rows(0).tolist() == []
