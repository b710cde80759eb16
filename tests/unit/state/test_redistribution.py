from __future__ import annotations

import pytest

from tidemark.state.redistribution import redistribute
from tidemark.state.snapshot import OperatorStatePart, Redistribution


def spread(lists: list[str], mode: Redistribution, parallelism: int) -> list[str]:
    parts = [[OperatorStatePart("s", mode, tuple(e.encode() for e in each), b"x", b"y")] for each in lists]
    shares = redistribute(parts, parallelism)
    assert all(part.serializer == b"x" and part.map_key_serializer == b"y" for [part] in shares)
    return ["".join(element.decode() for element in part.elements) for [part] in shares]


@pytest.mark.parametrize(
    ("old", "parallelism", "new"),
    [
        (["ab"], 2, ["a", "b"]),
        (["ab", "c", "de"], 2, ["abc", "de"]),
        (["ab", "c", "de"], 3, ["ab", "c", "de"]),
        (["ab", "", "de"], 3, ["ab", "", "de"]),
        (["abc"], 5, ["a", "b", "c", "", ""]),
        (["abcdefg"], 3, ["abc", "de", "fg"]),
        (["", ""], 1, [""]),
    ],
)
def test_even_split(old: list[str], parallelism: int, new: list[str]) -> None:
    assert spread(old, Redistribution.SPLIT, parallelism) == new


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_union_gives_everything_to_everybody(parallelism: int) -> None:
    assert spread(["ab", "c"], Redistribution.UNION, parallelism) == ["abc"] * parallelism


@pytest.mark.parametrize(
    ("parallelism", "new"), [(2, ["ab", "cd"]), (1, ["ab"]), (5, ["ab", "cd", "ab", "cd", "ab"])]
)
def test_broadcast_reads_the_copy_of_an_old_instance(parallelism: int, new: list[str]) -> None:
    assert spread(["ab", "cd"], Redistribution.BROADCAST, parallelism) == new


def test_broadcast_falls_back_to_an_instance_that_has_the_state() -> None:
    part = OperatorStatePart("s", Redistribution.BROADCAST, (b"k", b"v"))

    assert redistribute([[], [part]], 3) == [[part], [part], [part]]


@pytest.mark.parametrize(("parallelism", "new"), [(2, ["a", "b"]), (3, ["ab", "ab", "ab"])])
def test_raw_blobs_stay_or_go_to_everybody(parallelism: int, new: list[str]) -> None:
    assert spread(["a", "b"], Redistribution.RAW, parallelism) == new


def test_nothing_stays_nothing() -> None:
    assert redistribute([], 2) == [[], []]
    assert redistribute([[], []], 3) == [[], [], []]


def test_states_are_spread_independently() -> None:
    split = OperatorStatePart("a", Redistribution.SPLIT, (b"1", b"2"))
    union = OperatorStatePart("b", Redistribution.UNION, (b"3",))

    shares = redistribute([[split, union], []], 2)

    assert [[(part.name, part.elements) for part in share] for share in shares] == [
        [("a", (b"1", b"2")), ("b", (b"3",))],
        [("a", ()), ("b", (b"3",))],
    ]
