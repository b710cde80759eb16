"""The log of files a streaming query has seen, which Spark's file source keeps in `sources/<n>/`.

Entry `k` lists the files of the source's k-th look, a line of JSON for each behind a line with a version;
`k.compact` those of all looks up to it. What is above the offset that was committed last is what the query
reads next, and files of the last entry are what `cleanSource` deletes: a log from a stranger's snapshot would
make the query read and delete what it names. Hence a log is only let in up to the committed offset, and only
with files below the paths its source reads.
"""

from __future__ import annotations

import json
import logging
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_entry", "entry_number", "log_offset", "names_files", "source_roots"]

_log = logging.getLogger(__name__)

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_VERSION = re.compile(r"v[0-9]{1,9}")
_LINE_END = re.compile(r"[\r\n]")
_SOURCE = re.compile(r"FileSource\[(.*)\]", re.DOTALL)
_WILD = re.compile(r"[*?\[{]")


def log_offset(line: str) -> int | None:
    """How far a file source is, by its line of an offsets file; None if the line is another source's."""
    match _pairs(line):
        case [("logOffset", number)]:
            return _whole(number)
    return None


def entry_number(entry: str) -> int | None:
    """Which look an entry is of; None if it is no entry of such a log."""
    return _whole(entry.removesuffix(".compact"))


def names_files(content: str | bytes) -> bool:
    """Whether a source that is not known to read files keeps what Spark would take for a log of files."""
    return any(_is_file(_pairs(line)) for line in _lines(content))


def check_entry(entry: str, content: str | bytes, last: int, roots: list[str]) -> None:
    """Check one entry of a log whose offset `last` is committed.

    Args:
        entry: Its name.
        content: What it lists.
        last: The committed offset.
        roots: From `source_roots`; none if nobody knows where the source reads.

    Raises:
        ValueError: Spark has not written this, or it is about files of others. The text says what it is.
    """
    number = entry_number(entry)
    if number is None:
        raise ValueError("is no entry of a log of files")
    if number > last:
        raise ValueError(f"lists files behind the committed offset {last}, which would be read")
    allowed = [_located(root) for root in roots]
    version, *lines = _lines(content) or [""]
    if not _VERSION.fullmatch(version):
        raise ValueError("does not begin with a version")
    for line in lines:
        pairs = _pairs(line)
        fields = dict(pairs or ())
        batch, path = _whole(fields.get("batchId")), fields.get("path")
        if not _is_file(pairs) or len(fields) != len(pairs or ()) or not isinstance(path, str):
            raise ValueError("has a line that describes no file")
        if batch is None or batch > number:
            raise ValueError(f"has a file of another look ({fields.get('batchId')!s:.40})")
        if allowed and not any(_is_below(_located(path), root) for root in allowed):
            raise ValueError(
                f"names the file '{path:.300}', which is not below {' or '.join(roots)}, where the source reads now"
            )


def source_roots(session: SparkSession, frame: DataFrame) -> list[str]:
    """The directories the file sources of a streaming frame read, as URIs; none if one of them cannot be told.

    A source with `fileNameOnly` may have been moved, so its directory says nothing about its log; with
    `cleanSource` it does, since that deletes what the log names.
    """
    jvm: Any = session._jvm
    roots = []
    try:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        hadoop = session._jsparkSession.sessionState().newHadoopConf()
        for leaf in (leaves.apply(at) for at in range(leaves.size())):
            if leaf.getClass().getSimpleName() != "StreamingRelation":
                continue
            named = _SOURCE.fullmatch(str(leaf.sourceName()))
            if named is None:
                continue
            options = _options(leaf.dataSource().options().toSeq())
            if options.get("filenameonly") == "true" and options.get("cleansource", "off") == "off":
                return []
            path = jvm.org.apache.hadoop.fs.Path(_fixed_part(named[1]))
            roots.append(str(path.getFileSystem(hadoop).makeQualified(path).toUri().toString()))
    except Exception as exc:
        # Internals of Spark: without them the log is checked as far as it can be.
        _log.info("Where the files of a Spark stream are is not known: %s", exc)
        return []
    return roots


def _whole(number: Any) -> int | None:
    return int(number) if isinstance(number, str) and _NUMBER.fullmatch(number) else None


def _options(pairs: Any) -> dict[str, str]:
    """Options of a source; Spark does not tell capital letters from others."""
    found = [pairs.apply(at) for at in range(pairs.size())]
    return {str(pair._1()).lower(): str(pair._2()).lower() for pair in found}


def _fixed_part(pattern: str) -> str:
    """The directory below which everything lies that a path with wildcards matches."""
    wild = _WILD.search(pattern)
    return pattern if wild is None else pattern[: wild.start()].rpartition("/")[0] or "/"


def _located(uri: str) -> tuple[str, str, list[str]]:
    parts = urlsplit(uri)
    return parts.scheme, parts.netloc, [name for name in unquote(parts.path).split("/") if name]


def _is_below(file: tuple[str, str, list[str]], root: tuple[str, str, list[str]]) -> bool:
    names = root[2]
    return file[:2] == root[:2] and file[2][: len(names)] == names and not {".", ".."} & set(file[2])


def _lines(content: str | bytes) -> list[str]:
    text = content if isinstance(content, str) else content.decode(errors="replace")
    return [line for line in _LINE_END.split(text) if line]


def _is_file(pairs: list[tuple[str, Any]] | None) -> bool:
    return any(name == "path" and isinstance(value, str) for name, value in pairs or ())


def _pairs(line: str) -> list[tuple[str, Any]] | None:
    """The fields of a JSON object as they were written, doubles included; numbers are text."""
    try:
        found = json.loads(line, object_pairs_hook=_Fields, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, _Fields) else None


class _Fields(list[tuple[str, Any]]):
    """Tells an object from an array."""
