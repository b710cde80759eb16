from __future__ import annotations

from typing import Any

import pytest

from tidemark.state.descriptors import StateKind
from tidemark.state.expiry import Expiry, Living
from tidemark.state.ttl import StateTtlConfig


def test_the_rule_is_read_off_the_configuration() -> None:
    builder = StateTtlConfig.new_builder(10)
    plain = Expiry.of(builder.build())
    other = Expiry.of(
        builder.update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .cleanup_full_snapshot()
        .build()
    )

    assert plain == Expiry(10)
    assert other == Expiry(10, renew_on_read=True, return_expired=True, left_out_of_snapshots=True)


def test_every_question_draws_the_line_at_the_same_stamp() -> None:
    expiry = Expiry(10, left_out_of_snapshots=True)
    visible, written = expiry.visible_at(110), expiry.snapshot_at(110)

    assert visible == written == Living(expiry.dead_before(110)) == Living(100)
    for stamp in (99, 100, 101):
        assert expiry.is_expired(stamp, 110) is not Living(100).alive(stamp)
    assert [stamp for stamp in (99, 100, 101) if Living(100).alive(stamp)] == [101]


def test_nothing_is_filtered_where_expired_units_may_be_seen() -> None:
    assert Expiry(10, return_expired=True).visible_at(110) is None
    assert Expiry(10).snapshot_at(110) is None


@pytest.mark.parametrize(
    ("kind", "held", "living"),
    [
        (StateKind.VALUE, ("a", 100), None),
        (StateKind.VALUE, ("a", 101), ("a", 101)),
        (StateKind.LIST, [("a", 100), ("b", 101)], [("b", 101)]),
        (StateKind.LIST, [("a", 100)], None),
        (StateKind.MAP, {"x": ("a", 100), "y": ("b", 101)}, {"y": ("b", 101)}),
        (StateKind.MAP, {"x": ("a", 100)}, None),
    ],
)
def test_units_expire_by_themselves(kind: StateKind, held: Any, living: Any) -> None:
    assert Living(100).part(kind, held) == living
