"""Values on the move: the same bytes and columns as their serializer's, without their classes."""

from __future__ import annotations

import pytest
from tests.compat.v0_1.job import TYPES

from tidemark.state.serializers import dump_serializer_snapshot, load_serializer_snapshot, serializer_for
from tidemark.state.serializers.carrier import carrying_serializer
from tidemark.types.typeinfo import Types

NUMBERS = range(5)
NESTED = [
    (Types.LIST(type_info), lambda n, value=value: [value(n), value(n + 1)])
    for type_info, value in TYPES
    if value(1) is not None
]


@pytest.mark.parametrize(
    ("type_info", "value"),
    [pytest.param(kind, value, id=f"{at}-{kind}"[:60]) for at, (kind, value) in enumerate([*TYPES, *NESTED])],
)
def test_a_carrier_goes_from_columns_to_bytes_and_back(type_info, value):
    serializer = serializer_for(type_info)
    values = [value(number) for number in NUMBERS]
    column, rows = serializer.to_arrow(values), [serializer.to_bytes(each) for each in values]

    carrier = carrying_serializer(load_serializer_snapshot(dump_serializer_snapshot(serializer)))

    assert carrier.fixed_width == serializer.fixed_width
    assert carrier.arrow_type() == serializer.arrow_type()
    assert [carrier.to_bytes(each) for each in carrier.from_arrow(column)] == rows
    back = carrier.to_arrow([carrier.from_bytes(row) for row in rows])
    assert back.type == column.type
    assert serializer.from_arrow(back) == values
    assert [carrier.key_bytes(each) for each in carrier.from_arrow(column)] == [
        serializer.key_bytes(each) for each in values
    ]


def test_none_and_classes_without_fields_are_carried_too(monkeypatch):
    import sys
    import types
    from dataclasses import make_dataclass

    module = types.ModuleType("carried_shop")
    module.Empty = make_dataclass("Empty", [])
    module.Empty.__module__ = "carried_shop"
    monkeypatch.setitem(sys.modules, "carried_shop", module)
    serializer = serializer_for(module.Empty)
    carrier = carrying_serializer(load_serializer_snapshot(dump_serializer_snapshot(serializer)))
    values = [module.Empty(), None]

    column = serializer.to_arrow(values)

    assert carrier.from_arrow(column) == [(), None]
    assert carrier.to_arrow([(), None]).equals(column)
    assert [carrier.to_bytes(each) for each in [(), None]] == [serializer.to_bytes(each) for each in values]
    assert [carrier.from_bytes(serializer.to_bytes(each)) for each in values] == [(), None]
