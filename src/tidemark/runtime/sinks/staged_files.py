"""What a checkpoint stores of a file sink, and which files such a list may name.

A snapshot may come from anywhere, so its lists are hostile input: decoded with bounds, and a file is only
named by one of the two shapes we write, both inside the sink's base path (the second one by snapshots of 0.1.0):

    <base>/.tidemark-<claim>/.area-<n>-<token>/.<name>.inprogress  ->  <base>/<bucket>/<name>
    <base>/<bucket>/.<name>.inprogress                             ->  <base>/<bucket>/<name>
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Annotated

import msgspec
import xxhash

from tidemark.errors import ConfigError, MetadataError
from tidemark.paths import is_local, local_path
from tidemark.runtime.claim import AREA

__all__ = [
    "StagedFile",
    "checked_bucket",
    "checked_file_name",
    "checked_part_name",
    "claim_directory",
    "decode_commits",
    "encode_commits",
    "is_inside",
    "locate",
    "staged_name",
]

_CLAIMS = ".tidemark-"
_MAX_NAME = 255
_MAX_PATH = 4095
"""Bytes of a name and of a path that every file system we know takes."""
_Path = Annotated[str, msgspec.Meta(min_length=1, max_length=8192)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class StagedFile(msgspec.Struct, frozen=True, array_like=True):
    """One written file that is not visible yet."""

    staged: _Path
    final: _Path
    rows: _Count
    size: _Count
    checksum: Annotated[str, msgspec.Meta(max_length=64)]
    waiting: bool = False
    """Whether it is to be merged with others before it is published."""


_decoder: msgspec.msgpack.Decoder[list[StagedFile]] = msgspec.msgpack.Decoder(
    Annotated[list[StagedFile], msgspec.Meta(max_length=10_000_000)]
)


def encode_commits(files: Iterable[StagedFile]) -> bytes:
    """The list as a checkpoint stores it."""
    return msgspec.msgpack.encode(list(files))


def decode_commits(data: bytes, uid: str) -> list[StagedFile]:
    """Read a stored list.

    Raises:
        MetadataError: It is no list of staged files.
    """
    if not data:
        return []
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise MetadataError(
            f"The snapshot's entry for sink '{uid}' is no list of staged files: {exc}. Use another snapshot.",
            operator_uid=uid,
        ) from exc


def claim_directory(lineage: str, uid: str) -> str:
    """Name, below the base path, of the directory in which drivers of a lineage claim a sink."""
    # Hashed: both come from snapshots and programs, and may hold anything.
    return _CLAIMS + xxhash.xxh3_128_hexdigest(f"{lineage}\0{uid}".encode())


def staged_name(name: str) -> str:
    """Name of the file `name` while nobody may see it; readers skip it."""
    return f".{name}.inprogress"


def checked_bucket(base: str, bucket: str) -> str:
    """The directory of a bucket, which stays below the base path and can be made.

    Raises:
        ConfigError: The bucket is absolute, leaves the base path, is no path at all or one no file system takes.
    """
    if bucket == "":
        return base
    if isinstance(bucket, str) and _is_plain(bucket) and not bucket.startswith(_CLAIMS):
        directory = f"{base}/{bucket}"
        if _fits(directory) and not _is_file(directory):
            return directory
    raise ConfigError(
        f"The bucket assigner gave {str(bucket)[:300]!r}, which is no directory below the sink's base path. A "
        "bucket is names joined by '/', none of them empty, '.' or '..', over 255 bytes or a file's, and short "
        "enough for a path of 4095 bytes; make it so in get_bucket_id."
    )


def _fits(directory: str) -> bool:
    """Whether a directory and whatever file in it have paths that can be made."""
    try:
        path = directory.encode()
    except UnicodeEncodeError:
        return False
    longest = max(len(name) for name in path.split(b"/"))
    return longest <= _MAX_NAME and len(path) + 1 + _MAX_NAME <= _MAX_PATH


def _is_file(directory: str) -> bool:
    """Whether a file is where a local directory is to be, or above it."""
    if not is_local(directory):
        return False
    try:
        return stat.S_ISREG(os.stat(local_path(directory)).st_mode)
    except NotADirectoryError:
        return True
    except OSError:
        # It is not there yet, or publishing will tell.
        return False


def checked_part_name(text: str) -> str:
    """A prefix or suffix of file names.

    Raises:
        ConfigError: It holds a separator.
    """
    if "/" in text or "\0" in text:
        raise ConfigError(f"{text!r} cannot be part of a file's name. Use buckets for directories.")
    return text


def checked_file_name(name: str) -> str:
    """The name of a file, which can be made, while it is staged, too.

    Raises:
        ConfigError: It is too long, or no name at all, because of its prefix or suffix.
    """
    try:
        size = len(staged_name(name).encode())
    except UnicodeEncodeError as exc:
        raise ConfigError(f"{name!r} cannot be a file's name: {exc}. Change its prefix or suffix.") from exc
    if size > _MAX_NAME:
        raise ConfigError(
            f"The file sink's file {name[:300]!r} has a name of {size} bytes while it is staged; file systems take "
            f"{_MAX_NAME}. Shorten the prefix or suffix in OutputFileConfig by {size - _MAX_NAME} bytes or more."
        )
    return name


def is_inside(base: str, file: StagedFile) -> bool:
    """Whether a stored file belongs to the sink at `base`, rather than to one elsewhere.

    Raises:
        MetadataError: One of its two paths does, the other does not; or they are no proper paths.
    """
    for path in (file.staged, file.final):
        below = _relative_to(base, path)
        if "\0" in path or ".." in below.split("/") or (below != path and not _is_plain(below)):
            raise _refusal(base, file)
    inside = [_inside(base, path) is not None for path in (file.staged, file.final)]
    if inside[0] != inside[1]:
        raise _refusal(base, file)
    return inside[0]


def locate(base: str, claim: str, area: str, file: StagedFile, legacy_job: str = "") -> tuple[str, str]:
    """Where a file is staged now and where it will be visible, both relative to the base path.

    Args:
        base: The sink's base path.
        claim: The directory of its claim.
        area: The area of the claim's holder; files of earlier holders have moved there.
        file: As tasks report it or a snapshot lists it.
        legacy_job: The job of 0.1.0 whose snapshot lists it, if it does.

    Raises:
        MetadataError: It is not one of the shapes a sink at this base path writes.
    """
    staged, final = _inside(base, file.staged), _inside(base, file.final)
    if staged is None or final is None or final.startswith(_CLAIMS):
        raise _refusal(base, file)
    folder, _, name = staged.rpartition("/")
    bucket, _, visible = final.rpartition("/")
    if name != staged_name(visible):
        raise _refusal(base, file)
    top, _, inner = folder.partition("/")
    if top == claim and AREA.fullmatch(inner):
        return f"{area}/{name}", final
    if folder != bucket or not legacy_job or not _is_part_of(legacy_job, visible):
        raise _refusal(base, file)
    return staged, final


def _is_part_of(job_id: str, name: str) -> bool:
    """Whether a file's name is one that sinks of a job give: partition, job, sink, attempt, epoch, random."""
    return re.search(rf"-\d+-{re.escape(job_id[:12])}-\d+-\d+-\d+-[0-9a-f]{{8}}", name) is not None


def _inside(base: str, path: str) -> str | None:
    """The path relative to the base path, if it lies below it and is in its simplest form."""
    below = _relative_to(base, path)
    return below if below != path and _is_plain(below) else None


def _relative_to(base: str, path: str) -> str:
    """What follows the base path; the path itself if it does not begin so."""
    pairs = [(base, path)]
    if is_local(base) and is_local(path):
        pairs = [(local_path(base), local_path(path))]
        # One job may have been given `out`, the other `/home/me/out`.
        pairs.append((os.path.abspath(pairs[0][0]), pairs[0][1]))
    for root, whole in pairs:
        start = root.rstrip("/") + "/"
        if whole.startswith(start):
            return whole[len(start) :]
    return path


def _is_plain(path: str) -> bool:
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _refusal(base: str, file: StagedFile) -> MetadataError:
    return MetadataError(
        f"The snapshot lists the staged file {file.staged!r} to be published as {file.final!r}, which is not "
        f"what a sink at '{base}' writes. Nothing was touched; do not restore snapshots you do not trust.",
        path=file.final,
    )
