"""What a checkpoint stores of a Kafka sink: staged files by the checkpoint that was the first to cover them.

A checkpoint that is prepared while an older one is not complete lists that one's files, too. The older may be committed
meanwhile; the marker says up to which checkpoint records are visible, so each file is stored with the number of its
own. As every snapshot, the list is hostile input: decoded with bounds, and its files are only named in the shape we
write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from tidemark.errors import MetadataError
from tidemark.paths import is_local, same_host
from tidemark.runtime.claim import AREA, areas_of
from tidemark.runtime.places import open_place
from tidemark.runtime.sinks.staged_files import StagedFile, decode_commits

__all__ = ["StagedGroup", "decode_groups", "encode_groups", "listed_files", "waits_elsewhere"]

_CLAIM = re.compile(r"\.tidemark-[0-9a-f]{32}")


class StagedGroup(msgspec.Struct, frozen=True, array_like=True):
    """Files whose records one checkpoint was the first to cover."""

    checkpoint: Annotated[int, msgspec.Meta(ge=0)]
    files: Annotated[list[StagedFile], msgspec.Meta(max_length=10_000_000)]


class _Stored(msgspec.Struct, frozen=True):
    version: Annotated[int, msgspec.Meta(ge=1, le=1)]
    groups: Annotated[list[StagedGroup], msgspec.Meta(max_length=1_000_000)]


_decoder: msgspec.msgpack.Decoder[_Stored] = msgspec.msgpack.Decoder(_Stored)


def encode_groups(files: Mapping[int, list[StagedFile]]) -> bytes:
    """Files by checkpoint as a checkpoint stores them; nothing at all if there are none."""
    groups = [StagedGroup(key, files[key]) for key in sorted(files) if files[key]]
    return msgspec.msgpack.encode(_Stored(1, groups)) if groups else b""


def decode_groups(data: bytes, uid: str) -> list[StagedGroup]:
    """Read what a checkpoint stores.

    Raises:
        MetadataError: It is not what a Kafka sink stores.
    """
    if not data:
        return []
    try:
        return sorted(_decoder.decode(data).groups, key=lambda group: group.checkpoint)
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise MetadataError(
            f"The snapshot's entry for sink '{uid}' is no list of staged Kafka records: {exc}. Use another snapshot, "
            "or give the sink another uid if it was one of another kind.",
            operator_uid=uid,
        ) from exc


def listed_files(data: bytes, uid: str) -> list[StagedFile]:
    """The files a checkpoint lists for a sink, of files or of Kafka.

    Raises:
        MetadataError: It is neither's list.
    """
    try:
        return [file for group in decode_groups(data, uid) for file in group.files]
    except MetadataError:
        return decode_commits(data, uid)


def waits_elsewhere(base: str, file: StagedFile, uid: str) -> bool:
    """Whether a file that a sink with another directory or transactional id prefix has staged is still there.

    Args:
        base: The staging directory of this sink; nothing on another server is looked at.
        file: As a snapshot lists it.
        uid: The sink.

    Raises:
        MetadataError: It is not what such a sink writes, or is on another server.
        OSError: The place cannot be read.
    """
    parts = file.staged.rsplit("/", 3)
    reachable = is_local(file.staged) or same_host(file.staged, base)
    if (
        len(parts) < 4
        or _CLAIM.fullmatch(parts[1]) is None
        or AREA.fullmatch(parts[2]) is None
        or not reachable
    ):
        raise MetadataError(
            f"The snapshot lists the staged file {file.staged!r}, which is not what Kafka sink '{uid}' writes at "
            f"'{base}'. Nothing was touched; do not restore snapshots you do not trust.",
            path=file.staged,
            operator_uid=uid,
        )
    former, claim, _area, name = parts
    place = open_place(former)
    return any([name in place.names(f"{claim}/{area}") for area in areas_of(place, claim)])
