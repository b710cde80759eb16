"""Before output is published: is every staged file there, and is it what a task wrote?

All files of a checkpoint are looked at before the first is renamed and before the publication is noted. While
the note does not say that it has begun, whoever finds a file missing knows that its records are lost, and can
still go back to an older snapshot without publishing anything twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tidemark.errors import StorageError, StorageVerdict
from tidemark.runtime.sinks.frontier import Progress
from tidemark.runtime.sinks.places import Place
from tidemark.runtime.sinks.staged_files import StagedFile

__all__ = ["Unpublished", "unpublished"]

_log = logging.getLogger(__name__)

_REMEDY = ". Bring it back as it was, or start the job from an older snapshot ('tidemark run -s')"


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A file to be renamed, and both its paths below the base path."""

    file: StagedFile
    source: str
    target: str


def unpublished(
    place: Place,
    files: Iterable[Unpublished],
    what: str,
    progress: Progress,
    known: Collection[str],
    verify_claim: Callable[[], None],
    *,
    hashed: bool,
) -> list[Unpublished]:
    """Those of the files that are still staged; the others have been published.

    Args:
        place: The sink's place.
        files: What a checkpoint covers.
        what: The checkpoint, for messages.
        progress: How much of it is published, as far as is noted.
        known: Final paths of files that are known to have been published, though perhaps fetched since.
        verify_claim: Tells whether a missing file was taken away by a newer driver.
        hashed: Whether to compare checksums, too, which reads every file.

    Raises:
        FencedError: A newer driver owns the sink.
        StorageError: A file is missing and nothing says that it was published; it is not what was written; or
            another file has its final name.
        OSError: The place cannot be read.
    """
    staged = []
    for entry in files:
        if _is_staged(place, entry, hashed=hashed):
            staged.append(entry)
            continue
        verify_claim()
        if (
            progress is Progress.ALL
            or entry.file.final in known
            or _size(place, entry.target) == entry.file.size
        ):
            continue
        # Files are published in the order of the list: behind one that is still staged nothing was.
        if progress is Progress.NONE or staged:
            raise StorageError(
                f"The output file '{entry.file.final}' of {what} cannot be published: it is neither staged "
                f"('{entry.file.staged}') nor visible, so its {entry.file.rows} records are lost. It was "
                "never published; bring the staged file back, or start the job from an older snapshot ('tidemark "
                "run -s'), which writes these records again.",
                path=entry.file.final,
                verdict=StorageVerdict.MISSING,
            )
        _log.warning(
            "The output file '%s' of %s is neither staged nor visible. A driver died while it published %s: if "
            "nobody has fetched that file since, its %s RECORDS ARE LOST.",
            entry.file.final,
            what,
            what,
            entry.file.rows,
        )
    return staged


def _is_staged(place: Place, entry: Unpublished, *, hashed: bool) -> bool:
    size = _size(place, entry.source)
    if size is None:
        return False
    file = entry.file
    if size != file.size:
        problem = f"has {size} bytes instead of {file.size}{_REMEDY}"
    elif hashed and file.checksum and place.digest(entry.source) != file.checksum:
        problem = f"holds other bytes than were written (its checksum differs){_REMEDY}"
    elif (other := _size(place, entry.target)) is not None and not (
        other == size and place.digest(entry.target) == place.digest(entry.source)
    ):
        problem = f"cannot be published, because another file is at '{file.final}'; move that one away"
    else:
        return True
    raise StorageError(
        f"Staged output '{file.staged}' {problem}.", path=file.staged, verdict=StorageVerdict.DAMAGED
    )


def _size(place: Place, path: str) -> int | None:
    """Bytes of a file, None if there is none."""
    try:
        return place.size(path)
    except FileNotFoundError:
        return None
