"""The edge where the content of a snapshot is decoded: what cannot be read now cannot be read by another attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.errors import RestoreError, SerializationError, StateMigrationException, TidemarkError

__all__ = ["decoding"]


@contextmanager
def decoding(entry: str, uid: str | None = None) -> Iterator[None]:
    """Name the entry of the snapshot whose bytes make no sense.

    Errors that tell of something else pass: a storage that does not answer, a schema that does not fit.

    Raises:
        RestoreError: Decoding failed; retrying cannot help.
    """
    try:
        yield
    except Exception as exc:
        of_ours = isinstance(exc, TidemarkError) and not isinstance(exc, SerializationError)
        if of_ours or isinstance(exc, StateMigrationException | OSError | MemoryError):
            raise
        raise RestoreError(
            f"{entry} cannot be read from the snapshot ({type(exc).__name__}: {exc}). It was not written by this "
            "job, or has been changed; start from another snapshot.",
            operator_uid=uid,
        ) from exc
