"""Before output is published: is every staged file there, and is it what a task wrote?

All files of a checkpoint are looked at before the first is renamed and before the publication is noted. While
the note does not say that it has begun, whoever finds a file missing knows that its records are lost, and can
still go back to an older snapshot without publishing anything twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tidemark.config import Options
from tidemark.errors import StorageError, StorageVerdict
from tidemark.paths import parent
from tidemark.runtime.places import Place
from tidemark.runtime.sinks.frontier import Progress
from tidemark.runtime.sinks.staged_files import StagedFile

__all__ = ["StagedChecks", "Unpublished"]

_log = logging.getLogger(__name__)

_LISTED = 5
"""Files that a message names one by one."""
_REMEDY = ". Bring it back as it was, or start the job from an older snapshot ('tidemark run -s')"


@dataclass(frozen=True, slots=True)
class Unpublished:
    """A file to be renamed, and both its paths below the base path."""

    file: StagedFile
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class StagedChecks:
    """Looks at the files of one checkpoint before they are published.

    Attributes:
        place: The sink's place.
        what: The sink and the checkpoint, for messages.
        verify_claim: Tells whether a missing file was taken away by a newer driver.
        hashed: Whether to compare checksums, too, which reads every file.
        allow_missing: Whether to go on without files that nobody can say to be published or lost.
    """

    place: Place
    what: str
    verify_claim: Callable[[], None]
    hashed: bool
    allow_missing: bool

    def unpublished(
        self, files: Iterable[Unpublished], progress: Progress, known: Collection[str]
    ) -> list[Unpublished]:
        """Those of the files that are still staged; the others have been published.

        Args:
            files: What the checkpoint covers.
            progress: How much of it is published, as far as is noted.
            known: Final paths of files that are known to have been published, though perhaps fetched since.

        Raises:
            FencedError: A newer driver owns the sink.
            StorageError: A file is missing and nothing says that it was published; it is not what was written; or
                another file has its final name.
            OSError: The place cannot be read.
        """
        staged: list[Unpublished] = []
        doubtful: list[StagedFile] = []
        for entry in files:
            if self._is_staged(entry):
                staged.append(entry)
                continue
            self.verify_claim()
            if (
                progress is Progress.ALL
                or entry.file.final in known
                or _size(self.place, entry.target) == entry.file.size
            ):
                continue
            # Files are published in the order of the list: behind one that is still staged nothing was.
            if progress is Progress.NONE or staged:
                raise self._lost(entry.file)
            doubtful.append(entry.file)
        if doubtful:
            self._doubt(doubtful, progress)
        return staged

    def _is_staged(self, entry: Unpublished) -> bool:
        place, file = self.place, entry.file
        size = _size(place, entry.source)
        if size is None:
            return False
        if size != file.size:
            problem = f"has {size} bytes instead of {file.size}{_REMEDY}"
        elif self.hashed and file.checksum and place.digest(entry.source) != file.checksum:
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

    def _lost(self, file: StagedFile) -> StorageError:
        return StorageError(
            f"The output file '{file.final}' of {self.what} cannot be published: it is neither staged "
            f"('{file.staged}') nor visible, so its {file.rows} records are lost. It was "
            "never published; bring the staged file back, or start the job from an older snapshot ('tidemark "
            "run -s'), which writes these records again.",
            path=file.final,
            verdict=StorageVerdict.MISSING,
        )

    def _doubt(self, files: list[StagedFile], progress: Progress) -> None:
        """Nobody can say whether files were fetched by a reader or are lost."""
        listed = ", ".join(f"'{file.final}'" for file in files[:_LISTED])
        more = f" and {len(files) - _LISTED} more" if len(files) > _LISTED else ""
        rows = sum(file.rows for file in files)
        problem = (
            f"{len(files)} output files of {self.what} are neither staged nor visible: {listed}{more}. If nobody has "
            f"fetched them since they were published, their {rows} RECORDS ARE LOST"
        )
        if self.allow_missing or progress is Progress.UNKNOWN:
            _log.warning("%s.", problem)
            return
        raise StorageError(
            f"{problem}. A driver died while it published them, so nothing can say which. Bring the staged files "
            f"back ('{parent(files[0].staged)}'), or start from an older snapshot with "
            f"{Options.CHECKPOINTING_ALLOW_FALLBACK.key}: withdraw; if they were fetched, or may be missing, set "
            f"{Options.CHECKPOINTING_ALLOW_MISSING_OUTPUT.key}: true.",
            path=files[0].final,
            verdict=StorageVerdict.MISSING,
        )


def _size(place: Place, path: str) -> int | None:
    """Bytes of a file, None if there is none."""
    try:
        return place.size(path)
    except FileNotFoundError:
        return None
