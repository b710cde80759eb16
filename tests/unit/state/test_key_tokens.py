from __future__ import annotations

import pickle
from typing import Any

import pytest

from tidemark.state.key_tokens import KeyTokens, key_serializer_for
from tidemark.types.typeinfo import TypeInformation, Types

CASES = [
    pytest.param(Types.LONG(), [3, -1, 2**40], True, id="numbers"),
    pytest.param(Types.STRING(), ["a", "", "ü"], True, id="texts"),
    pytest.param(
        Types.DOUBLE(), [0.5, -0.0, 0.0], False, id="floats, whose equality is not that of their bytes"
    ),
    pytest.param(None, [("a", 1), "b", 2], False, id="pickled"),
]


@pytest.mark.parametrize(("key_type", "keys", "are_keys"), CASES)
def test_tokens_lead_back_to_keys_by_every_way(
    key_type: TypeInformation | None, keys: list[Any], are_keys: bool
) -> None:
    serializer = key_serializer_for(key_type)
    tokens = KeyTokens(serializer)

    made = tokens.of(keys)

    assert tokens.are_keys is are_keys
    assert made == tokens.of_stored(keys)
    assert list(tokens.keys(made)) == keys
    assert tokens.all_bytes(made) == [serializer.key_bytes(key) for key in keys]
    column = tokens.to_arrow(made)
    assert column.type == tokens.arrow_type()
    assert tokens.from_arrow(column) == made


def test_a_function_that_would_change_nothing_is_none() -> None:
    numbers, pickles = KeyTokens(key_serializer_for(Types.LONG())), KeyTokens(key_serializer_for(None))

    assert numbers.to_key is None
    assert pickles.to_bytes is None
    assert pickles.from_bytes is None


def test_users_keys_are_normalised() -> None:
    assert KeyTokens(key_serializer_for(Types.LONG())).of([True]) == [1]
    assert type(KeyTokens(key_serializer_for(Types.LONG())).of([True])[0]) is int


def test_tokens_survive_pickling() -> None:
    tokens = pickle.loads(pickle.dumps(KeyTokens(key_serializer_for(Types.LONG()))))

    assert tokens.of([1, 2]) == [1, 2]
