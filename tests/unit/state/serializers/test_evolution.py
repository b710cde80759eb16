"""State written by one version of a dataclass or Avro schema, read by the next."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.errors import StateMigrationException
from tidemark.state.serializers import (
    dump_serializer_snapshot,
    load_serializer_snapshot,
    resolve_compatibility,
    resolve_key_compatibility,
    serializer_for,
)
from tidemark.types.typeinfo import Types

HEADER = """
from __future__ import annotations
from dataclasses import dataclass, field
from typing import Optional
"""

Define = Callable[[str], types.ModuleType]


@pytest.fixture
def define(monkeypatch: pytest.MonkeyPatch) -> Define:
    """Return a function that replaces module ``shop`` by new source, as a redeployed job does."""

    def replace(source: str) -> types.ModuleType:
        module = types.ModuleType("shop")
        monkeypatch.setitem(sys.modules, "shop", module)
        exec(HEADER + source, module.__dict__)
        return module

    return replace


class Stored:
    """Values as they lie in a savepoint: snapshot, bytes, Arrow column."""

    def __init__(self, type_info: Any, values: list[Any]) -> None:
        serializer = serializer_for(type_info)
        self.snapshot = dump_serializer_snapshot(serializer)
        self.rows = [serializer.to_bytes(value) for value in values]
        self.column = serializer.to_arrow(values)

    def read_as(self, type_info: Any) -> list[Any]:
        """Read with the new type, in both stored forms, and pass through the new serializer."""
        new = serializer_for(type_info)
        resolution = resolve_compatibility(self.snapshot, new)
        resolution.require_compatible("cart")
        values = [resolution.reader.from_bytes(data) for data in self.rows]
        assert values == resolution.reader.from_arrow(self.column)
        assert [new.from_bytes(new.to_bytes(value)) for value in values] == values
        return values


V1 = """
@dataclass
class Cart:
    owner: str
    total: int
"""


def test_an_unchanged_class_is_compatible_as_is(define: Define) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1), None])
    cart = define(V1).Cart

    assert resolve_compatibility(stored.snapshot, serializer_for(cart)).is_compatible_as_is()
    assert stored.read_as(cart) == [cart("a", 1), None]


def test_added_fields_get_the_declared_default_or_javas(define: Define) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1)])
    cart = define(
        """
@dataclass(kw_only=True)
class Cart:
    currency: str = "EUR"
    owner: str
    items: list[int] = field(default_factory=lambda: [7])
    total: int
    count: int
    rate: float
    paid: bool
    note: str
    maybe: Optional[int]
    def __post_init__(self):
        raise AssertionError("must not run")
"""
    ).Cart

    resolution = resolve_compatibility(stored.snapshot, serializer_for(cart))
    first, second = [resolution.reader.from_bytes(stored.rows[0]) for _ in range(2)]

    assert resolution.is_compatible_after_migration()
    assert vars(first) == {
        "currency": "EUR",
        "owner": "a",
        "items": [7],
        "total": 1,
        "count": 0,
        "rate": 0.0,
        "paid": False,
        "note": None,
        "maybe": None,
    }
    assert first.items is not second.items


def test_removed_and_reordered_fields_are_matched_by_name(define: Define) -> None:
    old = define("@dataclass\nclass Cart:\n    a: int\n    gone: str\n    b: str\n    c: float\n")
    stored = Stored(old.Cart, [old.Cart(1, "x", "y", 2.5)])
    cart = define(
        "@dataclass(frozen=True, slots=True)\nclass Cart:\n    c: float\n    b: str\n    a: int\n"
    ).Cart

    assert stored.read_as(cart) == [cart(2.5, "y", 1)]


def test_a_removed_field_may_take_its_class_along(define: Define) -> None:
    old = define(
        """
@dataclass
class Address:
    street: str
class Thing:
    pass
@dataclass
class Cart:
    address: Address
    pair: tuple[int, Address]
    thing: Thing
    fixed: int
    total: int
"""
    )
    address = old.Address("s")
    stored = Stored(old.Cart, [old.Cart(address, (1, address), old.Thing(), 8, 9)])
    cart = define("@dataclass\nclass Cart:\n    total: int\n").Cart

    assert stored.read_as(cart) == [cart(9)]


def test_a_custom_serializer_may_go_with_its_removed_field(define: Define) -> None:
    old = define(
        """
from typing import Annotated
from tidemark.state.serializers import SimpleTypeSerializerSnapshot, TypeSerializer
from tidemark.types.typeinfo import Types
class Odd(TypeSerializer):
    def serialize(self, element, stream): stream.write_utf(element)
    def deserialize(self, stream): return stream.read_utf()
    def snapshot_configuration(self): return OddSnapshot()
class OddSnapshot(SimpleTypeSerializerSnapshot):
    def __init__(self): super().__init__(Odd)
@dataclass
class Cart:
    odd: Annotated[str, Types.SERIALIZED(Odd())]
    total: int
"""
    )
    stored = Stored(old.Cart, [old.Cart("x", 9)])
    cart = define("@dataclass\nclass Cart:\n    total: int\n").Cart

    assert stored.read_as(cart) == [cart(9)]


@pytest.mark.parametrize("declared", ["float", "Optional[int]", "str", "list[int]"])
def test_a_changed_field_type_is_refused(define: Define, declared: str) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1)])
    cart = define(V1.replace("total: int", f"total: {declared}")).Cart

    with pytest.raises(StateMigrationException, match="total: int"):
        stored.read_as(cart)


def test_a_renamed_class_is_refused(define: Define) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1)])
    basket = define(V1.replace("Cart", "Basket")).Basket

    with pytest.raises(StateMigrationException, match=r"shop\.Cart.*shop\.Basket"):
        stored.read_as(basket)
    with pytest.raises(StateMigrationException, match=r"shop\.Cart"):
        load_serializer_snapshot(stored.snapshot).restore_serializer()


def test_a_renamed_class_can_be_migrated_by_declaration(define: Define) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1)])
    module = define(V1 + V1.replace("Cart", "Basket"))
    migration = (Types.DATACLASS(module.Cart), lambda cart: module.Basket(cart.owner, cart.total))

    resolution = resolve_compatibility(stored.snapshot, serializer_for(module.Basket), [migration])

    assert resolution.is_compatible_after_migration()
    assert resolution.reader.from_bytes(stored.rows[0]) == module.Basket("a", 1)


def test_a_migration_may_start_from_an_evolved_form_of_the_old_class(define: Define) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1)])
    module = define(V1 + "    extra: int = 3\n")
    migration = (Types.DATACLASS(module.Cart), lambda cart: (cart.total, cart.extra))
    pair = serializer_for(Types.TUPLE([Types.LONG(), Types.LONG()]))

    resolution = resolve_compatibility(stored.snapshot, pair, [migration])

    assert resolution.reader.from_arrow(stored.column) == [(1, 3)]


def test_a_class_that_is_no_dataclass_any_more_is_refused(define: Define) -> None:
    stored = Stored(define(V1).Cart, [])
    define("class Cart: pass")

    with pytest.raises(StateMigrationException, match="was a dataclass"):
        load_serializer_snapshot(stored.snapshot).restore_serializer()
    assert resolve_compatibility(stored.snapshot, serializer_for(Types.LONG())).is_incompatible()


NESTED = """
@dataclass
class Item:
    name: str
    {item}
@dataclass
class Cart:
    first: Item
    items: list[Item]
    by_name: dict[str, Item]
    pair: tuple[int, Item]
    maybe: Optional[Item]
"""


def test_nested_classes_evolve_inside_lists_maps_and_tuples(define: Define) -> None:
    old = define(NESTED.format(item="price: int"))
    item = old.Item("i", 3)
    stored = Stored(old.Cart, [old.Cart(item, [item], {"i": item}, (1, item), item)])
    new = define(NESTED.format(item='unit: str = "pc"'))

    item = new.Item("i", "pc")
    assert stored.read_as(new.Cart) == [new.Cart(item, [item], {"i": item}, (1, item), item)]


def test_a_nested_type_change_is_refused(define: Define) -> None:
    old = define(NESTED.format(item="price: int"))
    stored = Stored(old.Cart, [])
    new = define(NESTED.format(item="price: str"))

    assert resolve_compatibility(stored.snapshot, serializer_for(new.Cart)).is_incompatible()


@pytest.mark.parametrize(
    "wrap",
    [
        Types.LIST,
        Types.OBJECT_ARRAY,
        lambda t: Types.MAP(Types.STRING(), t),
        lambda t: Types.TUPLE([Types.LONG(), t]),
        lambda t: Types.ROW([t]),
    ],
)
def test_containers_follow_the_type_they_hold(define: Define, wrap: Callable[[Any], Any]) -> None:
    old = serializer_for(wrap(Types.DATACLASS(define(V1).Cart)))
    data = dump_serializer_snapshot(old)
    evolved = serializer_for(wrap(Types.DATACLASS(define(V1 + "    extra: int = 0\n").Cart)))
    changed = serializer_for(wrap(Types.DATACLASS(define(V1.replace("int", "str")).Cart)))

    assert resolve_compatibility(data, evolved).is_compatible_after_migration()
    assert resolve_compatibility(data, changed).is_incompatible()
    assert resolve_key_compatibility(data, evolved).is_incompatible()


def test_state_restored_before_registration_already_has_the_new_shape(define: Define) -> None:
    stored = Stored(define(V1).Cart, [sys.modules["shop"].Cart("a", 1)])
    cart = define(V1 + "    extra: int = 5\n").Cart

    restored = load_serializer_snapshot(stored.snapshot).restore_serializer()

    assert restored.from_bytes(stored.rows[0]) == cart("a", 1, 5)
    assert restored.from_arrow(stored.column) == [cart("a", 1, 5)]


def test_a_restored_serializer_can_write_what_it_reads(define: Define) -> None:
    old = define("@dataclass\nclass Cart:\n    a: int\n    gone: int\n")
    stored = Stored(old.Cart, [old.Cart(1, 2)])
    cart = define("@dataclass\nclass Cart:\n    a: int\n").Cart

    restored = load_serializer_snapshot(stored.snapshot).restore_serializer()

    assert restored.from_bytes(restored.to_bytes(cart(4))) == cart(4)
    assert restored.from_arrow(restored.to_arrow([cart(4)])) == [cart(4)]


def avro(fields: str, name: str = "User", namespace: str = "shop") -> Any:
    return Types.AVRO(
        f'{{"type": "record", "name": "{name}", "namespace": "{namespace}", "fields": [{fields}]}}'
    )


ID = '{"name": "id", "type": "int"}'
OLD = avro(ID + ', {"name": "name", "type": "string"}')
COLOR = '{"name": "c", "type": {"type": "enum", "name": "C", "symbols": ["R", "G"]}}'


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        (OLD, {"id": 1, "name": "a"}, avro(ID), {"id": 1}),
        (
            OLD,
            {"id": 1, "name": "a"},
            avro(ID + ', {"name": "age", "type": "int", "default": 7}'),
            {"id": 1, "age": 7},
        ),
        (
            avro(ID),
            {"id": 1},
            avro('{"name": "id", "type": "double"}'),
            {"id": 1.0},
        ),
        (
            avro('{"name": "s", "type": "string"}'),
            {"s": "a"},
            avro('{"name": "s", "type": "bytes"}'),
            {"s": b"a"},
        ),
        (
            avro('{"name": "s", "type": "bytes"}'),
            {"s": b"a"},
            avro('{"name": "s", "type": "string"}'),
            {"s": "a"},
        ),
        (
            avro(ID),
            {"id": 1},
            avro('{"name": "key", "aliases": ["id"], "type": "long"}'),
            {"key": 1},
        ),
        (avro(ID), {"id": 1}, avro('{"name": "id", "type": ["null", "long"]}'), {"id": 1}),
        (
            avro(COLOR),
            {"c": "R"},
            avro(COLOR.replace('"R", "G"', '"G", "R", "B"')),
            {"c": "R"},
        ),
        (
            avro(COLOR),
            {"c": "R"},
            avro(COLOR.replace('["R", "G"]', '["G"], "default": "G"')),
            {"c": "G"},
        ),
        (
            avro('{"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "int"}}}'),
            {"m": {"a": [1]}},
            avro('{"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "long"}}}'),
            {"m": {"a": [1]}},
        ),
    ],
)
def test_avro_follows_its_own_resolution_rules(old: Any, value: Any, new: Any, expected: Any) -> None:
    stored = Stored(old, [value, None])

    resolution = resolve_compatibility(stored.snapshot, serializer_for(new))

    assert resolution.is_compatible_after_migration()
    assert stored.read_as(new) == [expected, None]


@pytest.mark.parametrize(
    "new",
    [
        avro(ID + ', {"name": "age", "type": "int"}'),
        avro('{"name": "id", "type": "string"}'),
        avro(ID, name="Person"),
        avro(ID, namespace="elsewhere"),
        Types.AVRO('"int"'),
        Types.LONG(),
    ],
)
def test_other_avro_changes_are_refused(new: Any) -> None:
    data = dump_serializer_snapshot(serializer_for(avro(ID)))

    assert resolve_compatibility(data, serializer_for(new)).is_incompatible()


def test_narrowing_enums_fixed_sizes_and_unions_is_refused() -> None:
    fixed = '{{"name": "f", "type": {{"type": "fixed", "name": "F", "size": {}}}}}'
    union = '{{"name": "u", "type": {}}}'
    pairs = [
        (avro(COLOR), avro(COLOR.replace(', "G"', ""))),
        (avro(fixed.format(4)), avro(fixed.format(8))),
        (avro(union.format('["null", "int"]')), avro(union.format('"int"'))),
        (avro(union.format('["null", "int"]')), avro(union.format('["null", "string"]'))),
    ]

    for old, new in pairs:
        data = dump_serializer_snapshot(serializer_for(old))
        assert resolve_compatibility(data, serializer_for(new)).is_incompatible()


def test_documentation_and_defaults_do_not_change_an_avro_schema() -> None:
    data = dump_serializer_snapshot(serializer_for(avro(ID)))
    documented = avro('{"name": "id", "type": {"type": "int"}, "doc": "the key", "default": 3}')

    assert resolve_compatibility(data, serializer_for(documented)).is_compatible_as_is()


def test_recursive_avro_records_resolve() -> None:
    tree = '{{"name": "v", "type": "{}"}}, {{"name": "next", "type": ["null", "User"]}}'
    value = {"v": 1, "next": {"v": 2, "next": None}}
    stored = Stored(avro(tree.format("int")), [value])

    assert stored.read_as(avro(tree.format("long"))) == [value]


def test_avro_state_read_before_registration_has_the_old_shape() -> None:
    stored = Stored(OLD, [{"id": 1, "name": "a"}])

    restored = load_serializer_snapshot(stored.snapshot).restore_serializer()

    assert restored.from_bytes(stored.rows[0]) == {"id": 1, "name": "a"}
