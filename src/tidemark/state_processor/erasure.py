"""Forget one key in a running job and prove it: what was dropped, and that no checkpoint has it any more."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidemark.checkpoint.metadata.model import METADATA_FILE
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import ConfigError, SavepointNotFoundError, TidemarkError
from tidemark.runtime.control_client import ControlClient
from tidemark.state.key_groups import assign_to_key_group
from tidemark.state.serializers.compatibility import load_serializer_snapshot
from tidemark.state_processor.open_snapshot import OpenSnapshot
from tidemark.state_processor.tables import canonical_tables

__all__ = ["ErasureProof", "erase_from_job", "rows_of_key"]

_DELETION_S = 30.0
_POLL_S = 0.02
_NOT_COVERED = (
    "values, operator state, broadcast state and raw state that mention the key",
    "savepoints, which belong to whoever took them: tidemark erase PATH",
    "of incremental RocksDB checkpoints the MANIFEST, which may name the key, without a value, as the border of a file "
    "that is gone, until the job starts anew",
    "sources, sinks and logs",
    "records with the key that came later or are read again after a failure",
)


@dataclass(frozen=True, slots=True)
class ErasureProof:
    """What is known about an erasure; `to_json` is the proof file."""

    facts: dict[str, Any]

    @property
    def complete(self) -> bool:
        """Whether the key is in no state of the job and in none of the checkpoints it retains."""
        return bool(self.facts["complete"])

    @property
    def rows(self) -> int:
        """Rows that the running job dropped."""
        return sum(count for states in self.facts["erased"].values() for count in states.values())

    def to_json(self) -> str:
        """The facts, and a digest over them. The key itself is not among them, only its digest."""
        text = json.dumps(self.facts, sort_keys=True)
        return json.dumps({**self.facts, "sha256": hashlib.sha256(text.encode()).hexdigest()}, indent=2)


def erase_from_job(
    job: str,
    key: str,
    proof: str | Path,
    uids: Collection[str] = (),
    *,
    address: str | None = None,
) -> ErasureProof:
    """Forget a key in every keyed state and timer of a running job and in the checkpoints it retains.

    The slots drop the key, new checkpoints take the place of those that had it, and these new ones are read: the proof
    tells for each how many rows of the key it found.

    Args:
        job: Id of the job, or the unique beginning of it.
        key: The key as text, read as the operators' key types.
        proof: File to write, JSON; must not exist.
        uids: Operators to forget it in; empty: all whose keys have a type that it fits.
        address: `HOST:PORT` of the job's control endpoint if it runs on another machine.

    Raises:
        ConfigError: The key fits no operator, there is a file at `proof`, or it cannot be written.
        JobNotFoundError: No such job runs.
        IllegalStateError, CheckpointError: The job restarted, or failed to take a checkpoint, again and again.
    """
    try:
        # Now, because afterwards it would be too late to hear that it cannot be written.
        Path(proof).touch(exist_ok=False)
    except OSError as exc:
        raise ConfigError(
            f"The proof cannot be written to {proof}: {exc.strerror}. Name a new file."
        ) from exc
    try:
        with ControlClient.find(job, address) as control:
            answer = control.request("erase", key=key, uids=list(uids))
        made = ErasureProof(_proven(answer))
        Path(proof).write_text(made.to_json() + "\n", encoding="utf-8")
    except BaseException:
        Path(proof).unlink()
        raise
    return made


def rows_of_key(path: str, keys: dict[str, bytes]) -> int:
    """Rows of a key, timers included, in a snapshot; `keys` are its canonical bytes by operator uid.

    Raises:
        StorageError: The snapshot cannot be read.
    """
    snapshot = OpenSnapshot.open(path)
    found = 0
    for uid, wanted in keys.items():
        operator = snapshot.metadata.operator(uid)
        if operator is None or not operator.is_keyed:
            continue
        group = assign_to_key_group(wanted, operator.max_parallelism)
        with canonical_tables(snapshot.split(operator, (group, group)), snapshot.storage) as tables:
            for meta, batches in tables:
                key = load_serializer_snapshot(meta.key).restore_serializer()
                for batch in batches:
                    found += sum(
                        key.key_bytes(each) == wanted for each in key.from_arrow(batch.column("key"))
                    )
    return found


def _proven(answer: dict[str, Any]) -> dict[str, Any]:
    keys: dict[str, bytes] = answer["keys"]
    checkpoints = [_checked(each, keys) for each in answer["checkpoints"]]
    kept = {each["directory"] for each in [*answer["checkpoints"], *answer["remaining"]]}
    replaced = [each for each in answer["replaced"] if each["directory"] not in kept]
    remaining = [*answer["remaining"], *_left(replaced)]
    return {
        "format": 1,
        "job_id": answer["job_id"],
        "job_name": answer["job_name"],
        "attempt": answer["attempt"],
        "erased_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "key_sha256": {uid: hashlib.sha256(key).hexdigest() for uid, key in keys.items()},
        "erased": answer["erased"],
        "checkpoints": checkpoints,
        "replaced": replaced,
        "remaining": remaining,
        "complete": not remaining and all(each["rows_found"] == 0 for each in checkpoints),
        "not_covered": list(_NOT_COVERED),
    }


def _left(replaced: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the replaced checkpoints that the job has not deleted in time."""
    storage, deadline = FileSystemStorage(), time.monotonic() + _DELETION_S
    left = []
    for each in replaced:
        while (there := storage.exists(each["directory"])) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if there:
            left.append({**each, "why": f"not deleted within {_DELETION_S:.0f} s"})
    return left


def _checked(checkpoint: dict[str, Any], keys: dict[str, bytes]) -> dict[str, Any]:
    """One checkpoint as it was read; one that cannot be read proves nothing, and says so."""
    directory = checkpoint["directory"]
    try:
        snapshot = OpenSnapshot.open(directory)
        metadata = snapshot.storage.read(f"{snapshot.path}/{METADATA_FILE}")
        digest = hashlib.sha256(metadata).hexdigest()
        return {**checkpoint, "metadata_sha256": digest, "rows_found": rows_of_key(directory, keys)}
    except SavepointNotFoundError:
        # Taken after the key was gone, and in the meantime replaced by a newer one.
        return {**checkpoint, "metadata_sha256": None, "rows_found": 0, "why": "deleted since"}
    except TidemarkError as exc:
        return {**checkpoint, "metadata_sha256": None, "rows_found": None, "why": str(exc)}
