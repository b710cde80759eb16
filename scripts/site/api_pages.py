"""The API reference as Markdown pages, from the docstrings of every public name."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

GROUPS = (
    (
        "environment",
        "Environment and jobs",
        "api.environment api.execution_config api.job api.sink api.slot_sharing api.cache api.collect "
        "config. futures ids clock",
    ),
    (
        "streams",
        "Streams",
        "api.stream api.keyed_stream api.windowed api.connected api.async_stream api.iteration api.output_tag "
        "api.field_key",
    ),
    ("functions", "Functions", "api.functions. api.context"),
    (
        "state",
        "State",
        "state.descriptors state.primitives state.ttl state.expired_state state.column_keys queryablestate.",
    ),
    ("time-and-windows", "Time and windows", "api.watermarks api.windows. api.time_domain types.time"),
    (
        "checkpoints",
        "Checkpoints and backends",
        "api.checkpoint_config api.checkpoint_storage api.state_backends.",
    ),
    ("types", "Types and serializers", "types. state.serializers."),
    ("connectors", "Connectors and formats", "api.connectors. api.split_source formats."),
    ("operators", "Operators of your own", "api.stream_operator api.raw_state"),
)
"""Page, title, and the modules (with a dot: beginnings of them) whose names it shows; the longest that fits counts."""

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Attributes|Example|Examples|Note):\s*$")
_ENTRY = re.compile(r"^(\*{0,2}\w[\w.]*)(?: \(([^)]+)\))?: (.*)$")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def pages() -> Iterator[tuple[str, str]]:
    """File name and Markdown of each page."""
    public = importlib.import_module("tidemark")
    placed: dict[str, list[str]] = {slug: [] for slug, _title, _modules in GROUPS}
    for name in public.__all__:
        placed[_group_of(getattr(public, name), name)].append(name)
    listing = [
        "# API",
        "",
        "Every name that programs import, from `tidemark` unless the page says otherwise.",
        "",
    ]
    for slug, title, _modules in GROUPS:
        names = sorted(placed[slug])
        yield f"{slug}.md", _page(title, "tidemark", names)
        listing += [f"## [{title}]({slug}.md)", "", _index(slug, names), ""]
    testing = importlib.import_module("tidemark.testing")
    names = sorted(name for name in testing.__all__ if callable(getattr(testing, name)))
    yield "testing.md", _page("Testing", "tidemark.testing", names)
    listing += ["## [Testing](testing.md)", "", _index("testing", names), ""]
    yield "index.md", "\n".join(listing)


def _group_of(thing: Any, name: str) -> str:
    module = getattr(thing, "__module__", "").removeprefix("tidemark.")
    fitting = [
        (len(prefix), slug)
        for slug, _title, prefixes in GROUPS
        for prefix in prefixes.split()
        if module == prefix or (prefix.endswith(".") and module.startswith(prefix))
    ]
    if not fitting:
        raise LookupError(f"{name} of {module} belongs on no page: add its module to GROUPS in {__file__}")
    return max(fitting)[1]


def _index(slug: str, names: list[str]) -> str:
    return ", ".join(f"[`{name}`]({slug}.md#{name.lower()})" for name in names)


def _page(title: str, module: str, names: list[str]) -> str:
    owner = importlib.import_module(module)
    parts = [f"# {title}", "", f"Import from `{module}`.", ""]
    for name in names:
        parts += _entry(name, getattr(owner, name))
    return "\n".join(parts)


def _entry(name: str, thing: Any) -> list[str]:
    lines = [f"## {name} {{#{name.lower()}}}", ""]
    if not inspect.isclass(thing):
        if getattr(thing, "__name__", name) != name:
            return [*lines, f"Another name of `{thing.__name__}`.", ""]
        return [*lines, *_signature(name, thing), *prose(inspect.getdoc(thing) or "")]
    if thing.__name__ != name:
        return [*lines, f"Another name of `{thing.__name__}`.", ""]
    bases = [base.__name__ for base in thing.__bases__ if base.__module__.startswith("tidemark")]
    lines += _signature(name, thing)
    if bases:
        lines += ["Extends " + ", ".join(f"`{base}`" for base in bases) + ".", ""]
    lines += prose(inspect.getdoc(thing) or "")
    if issubclass(thing, enum.Enum):
        return [*lines, *(f"- `{member.name}`" for member in thing), ""]
    for member_name, member in vars(thing).items():
        if not member_name.startswith("_"):
            lines += _member(name, member_name, member)
    return lines


def _member(owner: str, name: str, member: Any) -> list[str]:
    heading = [f"### {owner}.{name} {{#{owner.lower()}.{name.lower()}}}", ""]
    if isinstance(member, property):
        return [*heading, *prose(inspect.getdoc(member) or "Property.")]
    function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    if not inspect.isfunction(function) or not function.__doc__:
        return []
    return [*heading, *_signature(name, function), *prose(inspect.getdoc(function) or "")]


def _signature(name: str, thing: Any) -> list[str]:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return []
    parameters = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    if inspect.isclass(thing) and not parameters:
        return []
    text = _ADDRESS.sub("", f"{name}{signature.replace(parameters=parameters)}").replace("tidemark.", "")
    # Annotations of modules that postpone them are strings, which would be shown in quotes.
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    if len(text) > 100:
        arguments = ",\n".join(
            f"    {re.sub(_QUOTED, _UNQUOTED, _ADDRESS.sub('', str(p)))}" for p in parameters
        )
        end = text[text.rindex(")") :] if " -> " not in text else ")" + text[text.rindex(" -> ") :]
        text = f"{name}(\n{arguments},\n{end}"
    return ["```python", text, "```", ""]


_QUOTED, _UNQUOTED = r"(: )'([^']*)'", r"\1\2"


def prose(text: str) -> list[str]:
    """A docstring as Markdown: its sections become headed lists."""
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        found = _SECTION.match(line)
        if found:
            section = found[1]
            lines += ["", f"**{section}**", ""]
        elif section and line.startswith("    "):
            lines.append(_section_line(section, line[4:]))
        else:
            section = section if not line else ""
            lines.append("```text" if line == "::" else line)
    return [*_close(lines), ""]


def _section_line(section: str, line: str) -> str:
    if section in ("Example", "Examples"):
        return f"    {line}"
    entry = _ENTRY.match(line)
    if entry and section != "Returns":
        return f"- `{entry[1]}`: {entry[3]}"
    return line if not line.startswith("    ") else f"  {line.strip()}"


def _close(lines: list[str]) -> list[str]:
    """A drawing after `::` is indented; put a fence behind it."""
    if "```text" not in lines:
        return lines
    start = lines.index("```text")
    end = next(
        (n for n in range(start + 2, len(lines)) if lines[n] and not lines[n].startswith(" ")), len(lines)
    )
    return [*lines[:end], "```", "", *lines[end:]]
