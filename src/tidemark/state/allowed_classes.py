"""Which classes stored bytes may name: `state.restore.allowed-classes`.

A pickle is a program: whoever wrote it chooses what is imported and called. Where a list is given, a name that is not
on it is refused before its module is imported. A name must also lead to something that was made in a module of the
list: a module gives access to others that it has imported itself.

The list holds for the whole process: a slot is one job's, and jobs that share a driver must agree.

Who only looks at stored bytes (`tidemark diff`) needs no class at all: inside of `only_data` none is imported, and no
pickle opened, in this thread, whatever the list says.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tidemark.errors import ConfigError, ForbiddenClassError

__all__ = [
    "OPTION",
    "allow_classes",
    "allowed_classes",
    "check_allowed",
    "is_only_data",
    "loads",
    "only_data",
    "parse_allowed",
]

OPTION = "state.restore.allowed-classes"

_PLAIN = frozenset(
    {
        *(
            f"builtins.{name}"
            for name in ("bytearray", "complex", "frozenset", "list", "object", "range", "set")
        ),
        *(f"collections.{name}" for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
        "copyreg._reconstructor",
        "decimal.Decimal",
        "fractions.Fraction",
        "tidemark.types.row.row_of",
        "uuid.SafeUUID",
        "uuid.UUID",
    }
)
"""Classes whose making does nothing else, and how Python makes objects of a class without calling it."""
_OURS = ("tidemark.types", "tidemark.state.serializers")
_allowed: tuple[str, ...] | None = None
_only_data: ContextVar[bool] = ContextVar("tidemark_only_data", default=False)


def parse_allowed(text: str | None) -> tuple[str, ...] | None:
    """The list behind the option; None: everything. `none` stands for an empty list.

    Raises:
        ConfigError: An entry is no name of a module or class.
    """
    if text is None or not text.strip():
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return ()
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(
                f"{OPTION} holds '{name}', which is no name of a module or class. Write for example shop.model or "
                "shop.model.Order, with commas between.",
                key=OPTION,
            )
    return tuple(names)


def allow_classes(names: Iterable[str] | None) -> None:
    """From now on stored bytes may only name these modules and classes, and plain data; None: everything."""
    global _allowed
    _allowed = None if names is None else tuple(names)


def allowed_classes() -> tuple[str, ...] | None:
    """What holds in this process."""
    return _allowed


@contextmanager
def only_data() -> Iterator[None]:
    """Inside, stored bytes name nothing but serializers of ours, and their pickles stay closed."""
    token = _only_data.set(True)
    try:
        yield
    finally:
        _only_data.reset(token)


def is_only_data() -> bool:
    """Whether this runs inside of `only_data`."""
    return _only_data.get()


def check_allowed(name: str) -> None:
    """Make sure that stored bytes may name this class or function, by `module.QualName`.

    Raises:
        ForbiddenClassError: They may not.
    """
    if _only_data.get():
        if not _is_below(name, _OURS):
            raise ForbiddenClassError(
                f"Stored state names {name}, and is only looked at here, without the classes it names. Take savepoints "
                "to compare state that is read by a class of its own."
            )
        return
    if _allowed is None or name in _PLAIN or _is_below(name, (*_OURS, *_allowed)):
        return
    raise _forbidden(name)


def _forbidden(name: str) -> ForbiddenClassError:
    allowed = ", ".join(_allowed or ()) or "plain data"
    return ForbiddenClassError(
        f"Stored state names {name}, which {OPTION} does not allow (allowed: {allowed}). Add the class or its module "
        "there if you know it and trust the snapshot; do not restore it otherwise."
    )


def loads(data: bytes) -> Any:
    """Unpickle what was stored, within the list.

    Raises:
        ForbiddenClassError: It names something else, which was not imported, or is only looked at.
        Exception: What unpickling raises.
    """
    if _only_data.get():
        raise ForbiddenClassError("A pickle is not opened where stored state is only looked at.")
    if _allowed is None:
        return pickle.loads(data)
    return _Checked(io.BytesIO(data)).load()


class _Checked(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        check_allowed(f"{module}.{name}")
        found = super().find_class(module, name)
        if f"{module}.{name}" not in _PLAIN:
            home = f"{getattr(found, '__module__', None)}.{getattr(found, '__qualname__', name)}"
            check_allowed(home)
            if not isinstance(found, type) and not _is_below(home, _allowed or ()):
                # Of our own modules a value needs classes only.
                raise _forbidden(home)
        return found


def _is_below(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)
