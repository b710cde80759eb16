"""The text form of `tidemark inspect`."""

from __future__ import annotations

from typing import Any

from tidemark.cli.text import columns, date_time, size

__all__ = ["snapshot_lines"]

_LONGEST_POSITION = 200
_HEADER_OF_OFFSETS = 2


def snapshot_lines(description: dict[str, Any]) -> list[str]:
    """A snapshot described by `checkpoint.inspection.describe`, line by line."""
    lines = columns(
        [
            (str(description["type"]).capitalize(), description["path"]),
            ("Number", description["checkpoint_id"]),
            ("Job", f"{description['job_name']} ({description['job_id']})"),
            ("Taken", date_time(description["timestamp"])),
            ("State size", size(description["state_size"])),
            ("Format version", description["format_version"]),
        ]
    )
    for title, key in (("Source positions", "sources"), ("Sink commits", "sinks")):
        if description[key]:
            places = [(uid, _position(value)) for uid, value in sorted(description[key].items())]
            lines += [title, *columns(places, "  ")]
    for operator in description["operators"]:
        lines += _operator_lines(operator)
    return lines


def _operator_lines(operator: dict[str, Any]) -> list[str]:
    lines = [
        f"Operator {operator['name']} (uid {operator['uid']}): parallelism {operator['parallelism']}, "
        f"{operator['max_parallelism']} key groups, {size(operator['state_size'])}"
    ]
    for state in operator["keyed_states"]:
        lines += _keyed_lines(state)
    for state in operator["operator_states"]:
        lines.append(
            f"  operator state {state['name']}: {state['mode']}, {state['elements']} elements, "
            f"{size(state['state_size'])}, {_short(state['serializer'])}"
        )
    subtasks = [
        (
            f"subtask {subtask['index']}",
            _groups(subtask["key_groups"]),
            size(subtask["state_size"]),
            subtask["native"] or "",
        )
        for subtask in operator["subtasks"]
    ]
    return lines + columns(subtasks, "  ")


def _keyed_lines(state: dict[str, Any]) -> list[str]:
    types = [
        _short(state["key_serializer"]),
        _short(state["map_key_serializer"]),
        _short(state["value_serializer"]),
    ]
    facts = [
        f"{state['rows']} rows" if state["rows"] is not None else "in native files",
        *([size(state["state_size"])] if state["state_size"] is not None else []),
        " -> ".join([text for text in types if text != "-"]),
        *(["time-to-live"] if state["ttl"] else []),
    ]
    lines = [f"  {state['kind']} state {state['name']}: {', '.join(facts)}"]
    if state["columns"]:
        lines.append("    " + ", ".join([f"{name} {kind}" for name, kind in state["columns"].items()]))
    return lines


def _position(value: Any) -> str:
    """A source's or sink's place, short enough for a line: `--json` has the whole of it."""
    if isinstance(value, dict) and isinstance(value.get("offsets"), str):
        # Spark's log of offsets: a version and two kilobytes of its settings, then a line for each source.
        offsets = value["offsets"].split("\n")[_HEADER_OF_OFFSETS:]
        text = ", ".join([line for line in offsets if line]) or str(value)
    else:
        text = str(value)
    if len(text) <= _LONGEST_POSITION:
        return text
    return f"{text[:_LONGEST_POSITION]} ... ({len(text):,} characters, all of them with --json)"


def _short(qualified: str | None) -> str:
    return "-" if qualified is None else qualified.rpartition(".")[2]


def _groups(groups: list[int] | None) -> str:
    return "no key groups" if groups is None else f"key groups {groups[0]}-{groups[1]}"
