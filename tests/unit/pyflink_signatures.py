"""Public classes and methods of a PyFlink wheel, read with `ast`: nothing of it is imported, run or copied."""

from __future__ import annotations

import ast
import importlib
import inspect
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("pyflink/common/", "pyflink/datastream/")


@dataclass(frozen=True)
class Theirs:
    """One public name: a module, a class, a function or a method with its parameters."""

    name: str
    """Dotted, from the package on: `datastream.state.MapState.put_all`."""
    parameters: tuple[str, ...] | None = None
    """Without `self`, variable ones and Java objects; None for what is not called."""
    optional: frozenset[str] = frozenset()


def read_wheel(path: Path) -> list[Theirs]:
    """Everything public in the modules of the wheel that we mirror."""
    found: list[Theirs] = []
    with zipfile.ZipFile(path) as wheel:
        for file in sorted(wheel.namelist()):
            if not file.startswith(PACKAGES) or not file.endswith(".py") or "/tests/" in file:
                continue
            module = (
                file.removeprefix("pyflink/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            )
            found.append(Theirs(module))
            found += _members(module, ast.parse(wheel.read(file)), inside_class=False)
    return found


def _members(owner: str, node: ast.Module | ast.ClassDef, *, inside_class: bool) -> Iterator[Theirs]:
    # Of overloads the last definition counts, as when Python runs them.
    defined: dict[str, ast.stmt] = {}
    for child in node.body:
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            defined[child.name] = child
        elif inside_class and isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            defined |= {target.id: child for target in targets if isinstance(target, ast.Name)}
    for name, child in defined.items():
        if name.startswith("_") and not (name == "__init__" and inside_class):
            continue
        full = f"{owner}.{name}"
        if isinstance(child, ast.FunctionDef):
            yield _function(full, child, inside_class)
            continue
        yield Theirs(full)
        if isinstance(child, ast.ClassDef):
            yield from _members(full, child, inside_class=True)


def _function(name: str, node: ast.FunctionDef, inside_class: bool) -> Theirs:
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if "property" in decorators:
        return Theirs(name)
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    with_default = names[len(names) - len(node.args.defaults) :]
    if inside_class and "staticmethod" not in decorators:
        names = names[1:]
    if any(each.startswith("j_") and each not in with_default for each in names):
        # Wraps what only the Java side can make: programs do not call it.
        return Theirs(name)
    names = [each for each in names if not each.startswith("j_")]
    return Theirs(name, tuple(names), frozenset(with_default))


def difference(theirs: Theirs) -> str | None:
    """What is wrong with our counterpart; None if a program that calls theirs can call ours."""
    try:
        ours = _lookup(theirs.name)
    except (ImportError, AttributeError):
        return "missing"
    if theirs.parameters is None:
        return None
    if not callable(ours):
        return "not callable"
    return _call_difference(theirs, theirs.parameters, ours)


def _lookup(name: str) -> Any:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(["tidemark", *parts[:length]]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ImportError(name)


def _call_difference(theirs: Theirs, wanted: tuple[str, ...], ours: Callable[..., Any]) -> str | None:
    try:
        parameters = list(inspect.signature(ours).parameters.values())
    except ValueError:
        return None
    kinds = inspect.Parameter
    if any(parameter.kind is kinds.VAR_POSITIONAL for parameter in parameters) and any(
        parameter.kind is kinds.VAR_KEYWORD for parameter in parameters
    ):
        return None
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    ours_by_place = [p for p in parameters if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    names = tuple([parameter.name for parameter in ours_by_place])
    if names[: len(wanted)] != wanted:
        return f"takes ({', '.join(names)}) instead of ({', '.join(wanted)})"
    required = {p.name for p in ours_by_place if p.default is kinds.empty}
    if surplus := [name for name in names if name in required and name not in wanted]:
        return f"also requires {', '.join(surplus)}"
    if strict := sorted(required & theirs.optional):
        return f"requires {', '.join(strict)}, optional there"
    return None
