"""Types that come from numpy and pandas: arrays, and the scalar classes that stand for a type of ours."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tidemark.types.typeinfo import TypeInformation, Types

__all__ = ["NUMPY_KINDS", "NumpyArrayTypeInfo", "numpy_dtype_text", "type_of_class"]

NUMPY_KINDS = "biufcmMSU"
"""Kinds of element types of numpy arrays that have bytes of their own; objects and structures have none."""


def numpy_dtype_text(dtype: Any) -> str:
    """Return numpy's text of an element type, in little-endian order.

    Raises:
        TypeError: Arrays of it cannot be stored.
    """
    import numpy as np

    parsed = np.dtype(dtype).newbyteorder("<")
    if parsed.kind not in NUMPY_KINDS or parsed.itemsize == 0 or parsed.str in ("<f16", "<c32"):
        raise TypeError(f"NUMPY_ARRAY cannot hold elements of type {parsed}; convert them, or use a list.")
    return str(parsed.str)


class NumpyArrayTypeInfo(TypeInformation):
    """Arrays of numpy."""

    def __init__(self, dtype: Any = None, shape: Any = None) -> None:
        """Take an element type, a shape (a number means one dimension), or None for any."""
        self.dtype = None if dtype is None else numpy_dtype_text(dtype)
        if isinstance(shape, int) and not isinstance(shape, bool):
            shape = (shape,)
        if shape is not None:
            shape = tuple(operator.index(length) for length in shape)
            if any(length < 0 for length in shape):
                raise ValueError(f"The shape {shape} of an array has a negative length.")
        self.shape: tuple[int, ...] | None = shape

    def _identity(self) -> tuple[Any, ...]:
        return (self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"NumpyArrayTypeInfo<{self.dtype or 'any'}, {'any' if self.shape is None else self.shape}>"


_BY_NAME: dict[tuple[str, str], Callable[[], TypeInformation]] = {
    ("numpy", "ndarray"): Types.NUMPY_ARRAY,
    ("numpy", "bool_"): Types.BOOLEAN,
    ("numpy", "bool"): Types.BOOLEAN,
    ("numpy", "int8"): Types.BYTE,
    ("numpy", "int16"): Types.SHORT,
    ("numpy", "int32"): Types.INT,
    ("numpy", "int64"): Types.LONG,
    ("numpy", "float32"): Types.FLOAT,
    ("numpy", "float64"): Types.DOUBLE,
    ("numpy", "str_"): Types.STRING,
    ("pandas", "Timestamp"): Types.SQL_TIMESTAMP,
}


def type_of_class(cls: type[Any]) -> TypeInformation | None:
    """Return the type that holds values of a class of numpy or pandas; None for other classes.

    The class is told by its name: neither package is imported for it.
    """
    make = _BY_NAME.get((cls.__module__.partition(".")[0], cls.__name__))
    return None if make is None else make()
