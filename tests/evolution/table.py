"""The evolutions: a program before and after a change, and what becomes of its state.

The old program defines `TYPE` and `VALUES`. The new one defines `TYPE`, then either `EXPECTED` (what the old
values have become) or the table names the error; `MIGRATIONS` are declared on the descriptor.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.errors import StateMigrationException


@dataclass(frozen=True)
class Evolution:
    """One change of a program."""

    old: str
    new: str
    error: str | None = None
    """Fragment (a regular expression) of the message, if the change is refused."""
    error_type: type[Exception] = StateMigrationException
    whole: bool = False
    """Whether the change concerns the type as a whole, so that it cannot be nested in another one."""


CART = "@dataclass\nclass Cart:\n    owner: str\n    total: int\n"
CARTS = CART + "TYPE = Cart\nVALUES = [Cart('ann', 3), Cart('bob', 4)]\n"


def carts(source: str, *expected: str) -> str:
    """A new program with a class Cart."""
    return f"{source}\nTYPE = Cart\nEXPECTED = [{', '.join(expected)}]\n"


DATACLASSES = {
    "the class stays": Evolution(CARTS, carts(CART, "Cart('ann', 3)", "Cart('bob', 4)")),
    "a field with a default is added": Evolution(
        CARTS, carts(CART + "    currency: str = 'EUR'\n", "Cart('ann', 3, 'EUR')", "Cart('bob', 4, 'EUR')")
    ),
    "a field with a default factory is added": Evolution(
        CARTS,
        carts(
            CART + "    tags: list[int] = field(default_factory=lambda: [1])\n",
            "Cart('ann', 3, [1])",
            "Cart('bob', 4, [1])",
        ),
    ),
    "fields without a default are added": Evolution(
        CARTS,
        carts(
            CART + "    n: int\n    rate: float\n    paid: bool\n    note: str\n    maybe: Optional[int]\n",
            "Cart('ann', 3, 0, 0.0, False, None, None)",
            "Cart('bob', 4, 0, 0.0, False, None, None)",
        ),
    ),
    "a field is removed": Evolution(
        CARTS, carts("@dataclass\nclass Cart:\n    owner: str\n", "Cart('ann')", "Cart('bob')")
    ),
    "the only fields are replaced": Evolution(
        CARTS, carts("@dataclass\nclass Cart:\n    n: int = 1\n", "Cart()", "Cart()")
    ),
    "fields change places": Evolution(
        CARTS,
        carts(
            "@dataclass(frozen=True)\nclass Cart:\n    total: int\n    owner: str\n",
            "Cart(3, 'ann')",
            "Cart(4, 'bob')",
        ),
    ),
    "a field changes its type": Evolution(
        CARTS,
        carts(CART.replace("int", "float")),
        r"'state'.*Cart: owner: str, total: int.*Cart: owner: str, total: float",
    ),
    "a field becomes optional": Evolution(
        CARTS, carts(CART.replace("int", "Optional[int]")), r"total: int.*total: None \| int"
    ),
    "the class is renamed": Evolution(
        CARTS,
        CART.replace("Cart", "Basket") + "TYPE = Basket\n",
        r"'state'.*(evolving_shop\.Cart.*evolving_shop\.Basket)",
    ),
    "the class is no dataclass any more": Evolution(
        CARTS, "class Cart: pass\nTYPE = Types.LONG()\n", r"'state'.*evolving_shop\.Cart.*LONG"
    ),
    "a nested class gains and loses fields": Evolution(
        "@dataclass\nclass Item:\n    name: str\n    price: int\n"
        "@dataclass\nclass Cart:\n    first: Item\n    all: list[Item]\n    by: dict[str, Item]\n"
        "    pair: tuple[int, Item]\n    maybe: Optional[Item]\n"
        "i = Item('i', 3)\nTYPE = Cart\nVALUES = [Cart(i, [i, i], {'i': i}, (1, i), None)]\n",
        "@dataclass\nclass Item:\n    unit: str = 'pc'\n    name: str = ''\n"
        "@dataclass\nclass Cart:\n    first: Item\n    all: list[Item]\n    by: dict[str, Item]\n"
        "    pair: tuple[int, Item]\n    maybe: Optional[Item]\n"
        "i = Item('pc', 'i')\nTYPE = Cart\nEXPECTED = [Cart(i, [i, i], {'i': i}, (1, i), None)]\n",
    ),
    "a nested class changes a type": Evolution(
        "@dataclass\nclass Item:\n    price: int\n@dataclass\nclass Cart:\n    all: list[Item]\n"
        "TYPE = Cart\nVALUES = [Cart([Item(3)])]\n",
        "@dataclass\nclass Item:\n    price: str\n@dataclass\nclass Cart:\n    all: list[Item]\n"
        "TYPE = Cart\n",
        r"'state'.*evolving_shop\.Cart",
    ),
    "a nested class goes with its field": Evolution(
        "@dataclass\nclass Item:\n    price: int\n"
        "@dataclass\nclass Cart:\n    owner: str\n    all: list[Item]\n"
        "TYPE = Cart\nVALUES = [Cart('ann', [Item(3)])]\n",
        carts("@dataclass\nclass Cart:\n    owner: str\n", "Cart('ann')"),
    ),
}

DECLARED = {
    "a class is renamed, and says so": Evolution(
        CARTS,
        "@written_as('evolving_shop.Cart')\n"
        + CART.replace("Cart", "Basket")
        + "    more: int = 1\nTYPE = Basket\nEXPECTED = [Basket('ann', 3, 1), Basket('bob', 4, 1)]\n",
    ),
    "a class is renamed, with a migration": Evolution(
        CARTS,
        CART
        + CART.replace("Cart", "Basket")
        + "TYPE = Basket\nMIGRATIONS = [(Cart, lambda old: Basket(old.owner.upper(), old.total))]\n"
        + "EXPECTED = [Basket('ANN', 3), Basket('BOB', 4)]\n",
    ),
    "a field changes its type, with a migration": Evolution(
        CARTS,
        "@written_as('evolving_shop.Cart')\n"
        + CART.replace("Cart", "CartV1")
        + CART.replace("int", "str")
        + "TYPE = Cart\nMIGRATIONS = [(CartV1, lambda old: Cart(old.owner, f'{old.total} EUR'))]\n"
        + "EXPECTED = [Cart('ann', '3 EUR'), Cart('bob', '4 EUR')]\n",
    ),
    "a field is renamed, with a migration": Evolution(
        CARTS,
        "@written_as('evolving_shop.Cart')\n"
        + CART.replace("Cart", "CartV1")
        + CART.replace("total", "amount")
        + "TYPE = Cart\nMIGRATIONS = [(CartV1, lambda old: Cart(old.owner, old.total))]\n"
        + "EXPECTED = [Cart('ann', 3), Cart('bob', 4)]\n",
    ),
    "the migration of the stored version is taken": Evolution(
        CARTS,
        "@written_as('evolving_shop.Cart')\n@dataclass\nclass CartV1:\n    owner: str\n"
        "@written_as('evolving_shop.Cart')\n" + CART.replace("Cart", "CartV2") + "TYPE = Types.STRING()\n"
        "MIGRATIONS = [(CartV1, lambda old: 'first'), (CartV2, lambda old: f'{old.owner} {old.total}')]\n"
        "EXPECTED = ['ann 3', 'bob 4']\n",
    ),
    "a basic type changes, with a migration": Evolution(
        "TYPE = Types.LONG()\nVALUES = [3, 4]\n",
        "TYPE = Types.STRING()\nMIGRATIONS = [(Types.LONG(), str)]\nEXPECTED = ['3', '4']\n",
    ),
    "a tuple grows, with a migration": Evolution(
        "TYPE = Types.TUPLE([Types.LONG(), Types.LONG()])\nVALUES = [(1, 2), (3, 4)]\n",
        "TYPE = Types.TUPLE([Types.LONG()] * 3)\n"
        "MIGRATIONS = [(Types.TUPLE([Types.LONG()] * 2), lambda old: (*old, 9))]\n"
        "EXPECTED = [(1, 2, 9), (3, 4, 9)]\n",
    ),
    "pickled values get a type, with a migration": Evolution(
        "TYPE = Types.PICKLED_BYTE_ARRAY()\nVALUES = [{'n': 1}, {'n': 2}]\n",
        "TYPE = Types.LONG()\n"
        "MIGRATIONS = [(Types.PICKLED_BYTE_ARRAY(), lambda old: old['n'])]\nEXPECTED = [1, 2]\n",
    ),
    "no migration fits": Evolution(
        "TYPE = Types.LONG()\nVALUES = [3]\n",
        "TYPE = Types.STRING()\nMIGRATIONS = [(Types.DOUBLE(), str)]\n",
        "'state'.*LONG.*STRING.*migration",
    ),
}


def avro(fields: str, name: str = "User") -> str:
    return (
        f"""Types.AVRO('{{"type": "record", "name": "{name}", "namespace": "shop", "fields": [{fields}]}}')"""
    )


ID, NAMED = '{"name": "id", "type": "int"}', '{"name": "name", "type": "string"}'
USERS = (
    f"TYPE = {avro(ID + ', ' + NAMED)}\nVALUES = [{{'id': 1, 'name': 'ann'}}, {{'id': 2, 'name': 'bob'}}]\n"
)


def users(fields: str, expected: str = "", name: str = "User") -> str:
    return f"TYPE = {avro(fields, name)}\nEXPECTED = [{expected}]\n"


AVRO = {
    "avro: a field with a default is added": Evolution(
        USERS,
        users(
            f'{ID}, {NAMED}, {{"name": "age", "type": "long", "default": 7}}',
            "{'id': 1, 'name': 'ann', 'age': 7}, {'id': 2, 'name': 'bob', 'age': 7}",
        ),
    ),
    "avro: a field is removed": Evolution(USERS, users(ID, "{'id': 1}, {'id': 2}")),
    "avro: a number is promoted": Evolution(
        USERS,
        users(
            '{"name": "id", "type": "double"}, ' + NAMED,
            "{'id': 1.0, 'name': 'ann'}, {'id': 2.0, 'name': 'bob'}",
        ),
    ),
    "avro: a field is renamed with an alias": Evolution(
        USERS,
        users(
            '{"name": "key", "aliases": ["id"], "type": "int"}, ' + NAMED,
            "{'key': 1, 'name': 'ann'}, {'key': 2, 'name': 'bob'}",
        ),
    ),
    "avro: a field without a default is added": Evolution(
        USERS, users(f'{ID}, {NAMED}, {{"name": "age", "type": "int"}}'), "'state'.*AVRO.*AVRO"
    ),
    "avro: a type is narrowed": Evolution(
        USERS, users(f'{ID}, {{"name": "name", "type": "int"}}'), "'state'.*AVRO.*AVRO"
    ),
    "avro: the record is renamed": Evolution(
        USERS, users(f"{ID}, {NAMED}", name="Person"), "'state'.*User.*Person"
    ),
    "avro: the record is renamed, with a migration": Evolution(
        USERS,
        users(ID, "{'id': 1}, {'id': 2}", name="Person")
        + f"MIGRATIONS = [({avro(f'{ID}, {NAMED}')}, lambda old: {{'id': old['id']}})]\n",
    ),
}

OTHERS = {
    "basic: int becomes long": Evolution(
        "TYPE = Types.INT()\nVALUES = [1]\n", "TYPE = Types.LONG()\n", "'state'.*INT.*LONG"
    ),
    "tuple: a field is added": Evolution(
        "TYPE = Types.TUPLE([Types.LONG()])\nVALUES = [(1,)]\n",
        "TYPE = Types.TUPLE([Types.LONG(), Types.LONG()])\n",
        r"'state' was written as TUPLE\(LONG\) but is read as TUPLE\(LONG, LONG\)",
    ),
    "tuple: a field changes its type": Evolution(
        "TYPE = Types.TUPLE([Types.LONG()])\nVALUES = [(1,)]\n",
        "TYPE = Types.TUPLE([Types.STRING()])\n",
        r"'state' was written as TUPLE\(LONG\) but is read as TUPLE\(STRING\)",
    ),
    "row: a field is renamed": Evolution(
        "TYPE = Types.ROW_NAMED(['a'], [Types.LONG()])\nVALUES = [{'a': 1}]\n",
        "TYPE = Types.ROW_NAMED(['b'], [Types.LONG()])\n",
        r"'state'.*ROW\(a: LONG\).*ROW\(b: LONG\)",
    ),
    "list: the elements change": Evolution(
        "TYPE = Types.LIST(Types.LONG())\nVALUES = [[1]]\n",
        "TYPE = Types.LIST(Types.STRING())\n",
        r"'state'.*LIST\(LONG\).*LIST\(STRING\)",
    ),
    "list: becomes an array": Evolution(
        "TYPE = Types.LIST(Types.LONG())\nVALUES = [[1]]\n",
        "TYPE = Types.BASIC_ARRAY(Types.LONG())\n",
        r"'state'.*LIST\(LONG\).*BASIC_ARRAY",
    ),
    "map: the keys change": Evolution(
        "TYPE = Types.MAP(Types.INT(), Types.LONG())\nVALUES = [{1: 1}]\n",
        "TYPE = Types.MAP(Types.LONG(), Types.LONG())\n",
        r"'state'.*MAP\(INT, LONG\).*MAP\(LONG, LONG\)",
    ),
    "pickled: the class changes inside": Evolution(
        "class Thing:\n    def __init__(self, n): self.n = n\n"
        "TYPE = Types.PICKLED_BYTE_ARRAY()\nVALUES = [Thing(1)]\n",
        "class Thing:\n    more = 5\n    def __eq__(self, other): return vars(self) == vars(other)\n"
        "TYPE = Types.PICKLED_BYTE_ARRAY()\nEXPECTED = [Thing()]\nEXPECTED[0].n = 1\n",
    ),
}

TEXT = """
class Text(TypeSerializer):
    def serialize(self, element, stream): stream.write_utf(element)
    def deserialize(self, stream): return stream.read_utf()
    def snapshot_configuration(self): return TextSnapshot()
class TextSnapshot(SimpleTypeSerializerSnapshot):
    def __init__(self): super().__init__(Text)
"""

# Version 2 puts a mark in front of the text; its snapshot knows which version wrote the bytes.
MARKED = """
class Text(TypeSerializer):
    def __init__(self, version={version}): self.version = version
    def serialize(self, element, stream):
        stream.write_utf(element if self.version == 1 else '!' + element)
    def deserialize(self, stream):
        text = stream.read_utf()
        return text if self.version == 1 else text[1:]
    def snapshot_configuration(self): return TextSnapshot(self.version)
class TextSnapshot(TypeSerializerSnapshot):
    def __init__(self, version=0): self.version = version
    def get_current_version(self): return {version}
    def write_snapshot(self, out): out.write_int(self.version)
    def read_snapshot(self, read_version, in_, user_code_class_loader=None):
        assert read_version in (1, {version})
        self.version = in_.read_int()
    def resolve_schema_compatibility(self, new):
        if type(new) is not Text: return TypeSerializerSchemaCompatibility.incompatible()
        if new.version == self.version: return TypeSerializerSchemaCompatibility.compatible_as_is()
        return TypeSerializerSchemaCompatibility.{answer}
    def restore_serializer(self): return Text(self.version)
"""
USE_TEXT = "TYPE = Text()\nVALUES = EXPECTED = ['ann', 'bob']\n"

PAIR = """
class Pair(TypeSerializer):
    def __init__(self, *nested, sign='+'): self.nested, self.sign = nested, sign
    def serialize(self, element, stream):
        for serializer, part in zip(self.nested, element): serializer.serialize(part, stream)
    def deserialize(self, stream): return tuple([s.deserialize(stream) for s in self.nested])
    def snapshot_configuration(self): return PairSnapshot(self)
class PairSnapshot(CompositeTypeSerializerSnapshot):
    def __init__(self, serializer=None):
        super().__init__(serializer or Pair)
        self.sign = serializer.sign if serializer else None
    def get_current_outer_snapshot_version(self): return 3
    def get_nested_serializers(self, outer): return list(outer.nested)
    def create_outer_serializer_with_nested_serializers(self, nested): return Pair(*nested, sign=self.sign)
    def write_outer_snapshot(self, out): out.write_utf(self.sign)
    def read_outer_snapshot(self, version, in_, class_loader=None):
        assert version == 3
        self.sign = in_.read_utf()
    def is_outer_snapshot_compatible(self, new): return new.sign == self.sign
"""
MARKED_1 = MARKED.format(version=1, answer="incompatible()")
MARKED_2 = MARKED.format(version=2, answer="compatible_after_migration()")
RECONFIGURED = MARKED.format(version=2, answer="compatible_with_reconfigured_serializer(Text(1))")
PAIRS = PAIR + MARKED_1 + "TYPE = Pair(Text(), Text())\nVALUES = [('a', 'b')]\n"

CUSTOM = {
    "custom: the serializer stays": Evolution(TEXT + USE_TEXT, TEXT + USE_TEXT),
    "custom: after migration": Evolution(MARKED_1 + USE_TEXT, MARKED_2 + USE_TEXT),
    "custom: reconfigured": Evolution(MARKED_1 + USE_TEXT, RECONFIGURED + USE_TEXT),
    "custom: incompatible": Evolution(
        MARKED_1 + USE_TEXT,
        MARKED.format(version=2, answer="incompatible()") + USE_TEXT,
        "'state' was written as .*Text.* but is read as .*Text",
    ),
    "custom: another class than the simple snapshot's": Evolution(
        TEXT + USE_TEXT, TEXT + "class Other(Text): pass\nTYPE = Other()\n", "'state'.*Text.*Other"
    ),
    "custom: the snapshot class is gone": Evolution(
        TEXT + USE_TEXT,
        TEXT.replace("TextSnapshot", "RenamedSnapshot") + USE_TEXT,
        r"'state' cannot be read: .*evolving_shop\.TextSnapshot.*cannot be imported",
    ),
    "custom: no snapshot, same class": Evolution(
        TEXT.replace("snapshot_configuration", "unused") + USE_TEXT,
        TEXT.replace("snapshot_configuration", "unused") + USE_TEXT,
    ),
    "custom: no snapshot, another class": Evolution(
        TEXT.replace("snapshot_configuration", "unused") + USE_TEXT,
        TEXT.replace("snapshot_configuration", "unused") + "class Other(Text): pass\nTYPE = Other()\n",
        r"'state' was written as evolving_shop\.Text but is read as Other",
    ),
    "custom: replaced by a type, with a migration": Evolution(
        TEXT + USE_TEXT,
        TEXT + "TYPE = Types.LONG()\nMIGRATIONS = [(Text(), len)]\nEXPECTED = [3, 3]\n",
    ),
    "composite: a nested serializer migrates": Evolution(
        PAIRS, PAIR + MARKED_2 + "TYPE = Pair(Text(), Text())\nEXPECTED = [('a', 'b')]\n"
    ),
    "composite: a nested serializer is reconfigured": Evolution(
        PAIRS, PAIR + RECONFIGURED + "TYPE = Pair(Text(), Text())\nEXPECTED = [('a', 'b')]\n"
    ),
    "composite: a nested serializer is incompatible": Evolution(
        PAIRS,
        PAIR + MARKED.format(version=2, answer="incompatible()") + "TYPE = Pair(Text(), Text())\n",
        "'state'.*Pair.*Pair",
    ),
    "composite: the outer settings differ": Evolution(
        PAIRS, PAIR + MARKED_1 + "TYPE = Pair(Text(), Text(), sign='-')\n", "'state'.*Pair.*Pair"
    ),
    "composite: another number of nested serializers": Evolution(
        PAIRS,
        PAIR + MARKED_1 + "TYPE = Pair(Text())\n",
        "Pair was written with 2 nested serializers and is restored with 1",
        ValueError,
    ),
    "composite: another number, with a migration": Evolution(
        PAIRS,
        PAIR
        + MARKED_1
        + "TYPE = Pair(Text())\nMIGRATIONS = [(Pair(Text(), Text()), lambda old: old[:1])]\n"
        + "EXPECTED = [('a',)]\n",
    ),
    "nullable: the inner serializer migrates": Evolution(
        MARKED_1 + "TYPE = NullableSerializer(Text())\nVALUES = ['ann', 'bob']\n",
        MARKED_2 + "TYPE = NullableSerializer(Text())\nEXPECTED = ['ann', 'bob']\n",
    ),
    "a dataclass field's own serializer migrates": Evolution(
        MARKED_1
        + "@dataclass\nclass Cart:\n    owner: Annotated[str, Types.SERIALIZED(Text())]\n    total: int\n"
        + "TYPE = Cart\nVALUES = [Cart('ann', 3)]\n",
        MARKED_2
        + "@dataclass\nclass Cart:\n    total: int\n    owner: Annotated[str, Types.SERIALIZED(Text())]\n"
        + "TYPE = Cart\nEXPECTED = [Cart(3, 'ann')]\n",
    ),
}

EVOLUTIONS = {**DATACLASSES, **DECLARED, **AVRO, **OTHERS, **CUSTOM}

EVERYWHERE = [
    "a field with a default is added",
    "a field is removed",
    "a field changes its type",
    "a class is renamed, and says so",
    "a field is renamed, with a migration",
    "avro: a field with a default is added",
    "avro: the record is renamed",
    "custom: after migration",
    "custom: reconfigured",
    "custom: incompatible",
    "custom: the snapshot class is gone",
]
"""Changes that are tried in every kind of state; the others in value state only."""
