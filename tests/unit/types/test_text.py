from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest

from tidemark.types.row import Row, RowKind
from tidemark.types.text import text_of
from tidemark.types.time import Instant
from tidemark.types.typeinfo import Types

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.mark.parametrize(
    ("value", "type_info", "expected"),
    [
        (("a", 1), None, "('a', 1)"),
        ("plain", None, "plain"),
        (("a", 1), Types.PICKLED_BYTE_ARRAY(), "('a', 1)"),
        (None, Types.PICKLED_BYTE_ARRAY(), "None"),
        (("a", 1), PAIR, "(a,1)"),
        ((("a", 1), None), Types.TUPLE([PAIR, Types.STRING()]), "((a,1),null)"),
        (Row("a", 1), Types.ROW([Types.STRING(), Types.LONG()]), "+I[a,1]"),
        (Row.of_kind(RowKind.DELETE, "a", None), Types.ROW([Types.STRING(), Types.LONG()]), "-D[a,None]"),
        (("a", True), Types.ROW([Types.STRING(), Types.BOOLEAN()]), "+I[a,True]"),
        (True, Types.BOOLEAN(), "true"),
        (False, Types.BOOLEAN(), "false"),
        (None, Types.STRING(), "null"),
        (1, Types.LONG(), "1"),
        (1.0, Types.DOUBLE(), "1.0"),
        (1e10, Types.DOUBLE(), "1.0E10"),
        (-1.25e-7, Types.DOUBLE(), "-1.25E-7"),
        (123456789.125, Types.DOUBLE(), "1.23456789125E8"),
        (0.0005, Types.DOUBLE(), "5.0E-4"),
        (math.nan, Types.DOUBLE(), "NaN"),
        (-math.inf, Types.DOUBLE(), "-Infinity"),
        (math.inf, Types.FLOAT(), "Infinity"),
        (110.0999984741211, Types.FLOAT(), "110.1"),
        ("text", Types.STRING(), "text"),
        (Decimal("1.50"), Types.BIG_DEC(), "1.50"),
        (datetime.date(2020, 1, 2), Types.SQL_DATE(), "2020-01-02"),
        (datetime.time(1, 2, 3), Types.SQL_TIME(), "01:02:03"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5), Types.SQL_TIMESTAMP(), "2020-01-02 03:04:05.0"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 120000), Types.SQL_TIMESTAMP(), "2020-01-02 03:04:05.12"),
        (Instant(0, 500_000_000), Types.INSTANT(), "1970-01-01T00:00:00.500Z"),
        (Instant(2**62, 0), Types.INSTANT(), f"Instant<{2**62}, 0>"),
        (["a", None], Types.LIST(Types.STRING()), "[a, null]"),
        (b"\x01\xff", Types.PRIMITIVE_ARRAY(Types.BYTE()), "[1, -1]"),
        ({"k": 1, "l": None}, Types.MAP(Types.STRING(), Types.LONG()), "{k=1, l=null}"),
        ([("a", 1)], Types.LIST(PAIR), "[(a,1)]"),
    ],
)
def test_values_print_as_their_type_says(value: Any, type_info: Any, expected: str) -> None:
    assert text_of(value, type_info) == expected
