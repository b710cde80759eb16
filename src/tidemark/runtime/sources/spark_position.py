"""Where a streaming query stands, as plain data: what Spark's checkpoint directory says about its sources.

A position has two parts. `offsets` is the line-by-line offsets file of the last batch that was processed (None
before the first): a version, a line of settings, then a line for every source of the query in its order, `-` for
one that has not delivered anything. `sources` is what source n keeps for itself in `sources/<n>/`: the rate source
when it began, Kafka the offsets it began at, the file source a log of the files it has seen. All of it is copied
as it is, except that a file log is cut at the batch, because Spark is ahead of us in it.

Restoring writes a position into a fresh directory, renumbered to batch 0 and committed, under a fresh query id.
A position comes from a snapshot, which may come from anybody: names are checked before anything is written, and
so is what a log of files says (`spark_file_log`).
"""

from __future__ import annotations

import json
import os
import re
import uuid
from typing import Any

from tidemark.errors import RestoreError
from tidemark.runtime.sources.spark_file_log import check_entry, entry_number, log_offset, names_files

__all__ = ["pack_initial_position", "pack_position", "unpack_position"]

_MOST_BYTES = 1 << 30
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_NOTHING_YET = "-"
_HEADER_LINES = 2


def pack_position(directory: str, batch_id: int) -> dict[str, Any]:
    """What restores the query behind batch `batch_id`; call it while the callback of that batch waits."""
    with open(os.path.join(directory, "offsets", str(batch_id)), encoding="utf-8") as stream:
        offsets = stream.read()
    lines = offsets.split("\n")[_HEADER_LINES:]
    kept = {}
    for number, folder in _folders(directory):
        line = lines[number] if number < len(lines) else _NOTHING_YET
        # The file source numbers its own log; that number, not the batch id, says which entries belong to us.
        last = log_offset(line)
        kept[str(number)] = _first_entries(folder) if last is None else _log_tail(folder, last)
    return {"offsets": offsets, "sources": kept}


def pack_initial_position(directory: str) -> dict[str, Any]:
    """What restores a query that has processed nothing, once it has fixed where its sources begin."""
    kept = {str(number): _first_entries(folder) for number, folder in _folders(directory)}
    return {"offsets": None, "sources": kept}


def unpack_position(position: Any, directory: str, uid: str, roots: list[str] | None = None) -> None:
    """Make `directory` the checkpoint of a query that has just committed the packed batch, as batch 0.

    Args:
        position: What was packed.
        directory: An empty directory, or one that does not exist.
        uid: Of the source, for the error.
        roots: Where the query's file sources read, as far as that is known (`spark_file_log.source_roots`).

    Raises:
        RestoreError: The position is not one that was packed here; nothing has been written.
    """
    files: dict[str, Any] = {"metadata": json.dumps({"id": str(uuid.uuid4())})}
    offsets, sources = _parts(position, uid)
    _check_logs(offsets, sources, uid, roots or [])
    if offsets is not None:
        files |= {"offsets/0": offsets, "commits/0": "v1\n{}"}
    for name, entries in sources.items():
        for entry, content in entries.items():
            files[f"sources/{name}/{entry}"] = content
    for path, content in files.items():
        target = os.path.join(directory, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "xb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)


def _parts(position: Any, uid: str) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """The checked parts of a position."""
    if not isinstance(position, dict):
        raise _refused(uid, "position", f"is {type(position).__name__}, not a map")
    offsets, sources = position.get("offsets"), position.get("sources")
    if offsets is not None and not isinstance(offsets, str):
        raise _refused(uid, "offsets", "is not text")
    if not isinstance(sources, dict):
        raise _refused(uid, "sources", "is not a map")
    size = len(offsets or "")
    for name, entries in sources.items():
        if not isinstance(name, str) or not _NUMBER.fullmatch(name):
            raise _refused(uid, f"sources/{name!s:.100}", "is not the number of a source")
        if not isinstance(entries, dict):
            raise _refused(uid, f"sources/{name}", "is not a map")
        for entry, content in entries.items():
            if not isinstance(entry, str) or not _NAME.fullmatch(entry):
                raise _refused(uid, f"sources/{name}/{entry!s:.200}", "is not a plain file name")
            if not isinstance(content, str | bytes):
                raise _refused(uid, f"sources/{name}/{entry}", "is neither text nor bytes")
            size += len(content)
    if size > _MOST_BYTES:
        raise _refused(uid, "position", f"has {size} bytes, more than {_MOST_BYTES}")
    return offsets, sources


def _check_logs(offsets: str | None, sources: dict[str, dict[str, Any]], uid: str, roots: list[str]) -> None:
    if "\r" in (offsets or ""):
        raise _refused(uid, "offsets", "has lines that end as Spark's do not")
    lines = (offsets or "").split("\n")[_HEADER_LINES:]
    for name, entries in sources.items():
        last = log_offset(lines[int(name)]) if int(name) < len(lines) else None
        for entry, content in entries.items():
            where = f"sources/{name}/{entry}"
            if last is None:
                if names_files(content):
                    raise _refused(
                        uid, where, "lists files, of which no offset says that they have been read"
                    )
                continue
            try:
                check_entry(entry, content, last, roots)
            except ValueError as exc:
                raise _refused(uid, where, str(exc)) from exc


def _refused(uid: str, entry: str, why: str) -> RestoreError:
    return RestoreError(
        f"The snapshot's position of the Spark stream '{uid}' is refused: '{entry}' {why}. It was not written by "
        "this library, or has been changed; start from another snapshot.",
        operator_uid=uid,
    )


def _folders(directory: str) -> list[tuple[int, str]]:
    """Number and directory of every source that keeps something."""
    parent = os.path.join(directory, "sources")
    names = os.listdir(parent) if os.path.isdir(parent) else []
    return sorted((int(name), os.path.join(parent, name)) for name in names if _NUMBER.fullmatch(name))


def _first_entries(folder: str) -> dict[str, bytes]:
    """What a source keeps, without a file log: whoever has processed nothing of it has seen no file."""
    entries = {entry: _read(folder, entry) for entry in os.listdir(folder) if _NAME.fullmatch(entry)}
    return {entry: content for entry, content in entries.items() if not names_files(content)}


def _log_tail(folder: str, last: int) -> dict[str, bytes]:
    """The entries of a file log up to `last`, from the newest compacted one on."""
    numbers = {
        entry: number
        for entry in os.listdir(folder)
        if (number := entry_number(entry)) is not None and number <= last
    }
    base = max((number for entry, number in numbers.items() if entry.endswith(".compact")), default=-1)
    return {
        entry: _read(folder, entry)
        for entry, number in numbers.items()
        if number > base or entry == f"{base}.compact"
    }


def _read(folder: str, entry: str) -> bytes:
    with open(os.path.join(folder, entry), "rb") as stream:
        return stream.read()
