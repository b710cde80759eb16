"""Whose directory it is: the newest claimant's, and everybody else can tell. File sinks and jobs are claimed so.

A claim lives in a directory of its own, private to the user:

    .generation-<n>          made exclusively by the n-th claimant; says who it is
    .area-<n>-<token>/       where that claimant, and nobody else, keeps files

To claim is to create the next generation and then to take the areas of all older ones away, files included:
a step of an older claimant that comes late finds neither its area nor its claim. Where directories can be
renamed (local disks, HDFS) taking an area is one step; in object stores its files move one by one, and
where exclusive creation is unknown the last writer of a generation wins, which the loser sees at its next
`verify`. Tokens are random, so that numbers may start again after a release.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from contextlib import suppress

import msgspec

from tidemark.errors import FencedError
from tidemark.processes import process_started, this_machine
from tidemark.runtime.places import Place
from tidemark.runtime.sealed_notes import DamagedNote, seal, unseal

__all__ = ["AREA", "Claim", "Holder", "areas_of", "newest_claim"]

_GENERATION = re.compile(r"\.generation-(\d{1,18})")
AREA = re.compile(r"\.area-(\d{1,18})-[0-9a-f]{16}(\.[0-9a-f]{8})?")
"""Names of areas; with a suffix, one that its taker did not empty before it died."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds a claim, for the message the others get."""

    job_id: str
    subject: str
    """What is claimed, for humans."""
    token: str = ""
    host: str = ""
    pid: int = 0
    since: int = 0
    """Seconds since the epoch."""
    machine: str = ""
    """Within which process numbers mean something: see `this_machine`."""
    started: float = 0.0
    """What `process_started` says of the process."""


class Claim:
    """The right to one directory, until a newer claimant takes it."""

    def __init__(self, place: Place, directory: str, generation: int, holder: Holder) -> None:
        """Use `acquire`."""
        self._place = place
        self._directory = directory
        self._holder = holder
        self.generation = generation
        self.area = f"{directory}/.area-{generation:08d}-{holder.token}"
        """Path of the directory that only the holder of this claim uses."""

    @classmethod
    def acquire(
        cls, place: Place, directory: str, job_id: str, subject: str, *, behind: int | None = None
    ) -> Claim:
        """Become the newest claimant, and the owner of every file that older ones kept in their areas.

        A crash at any moment leaves at worst a generation nobody holds and areas the next claimant takes.

        Args:
            place: Where.
            directory: What is claimed.
            job_id: Who claims.
            subject: What it is, for the message that others get.
            behind: Claim only if this generation, 0 for none, is still the newest one.

        Raises:
            FencedError: Somebody claimed right behind us, or in front of us although `behind` was given.
            OSError: The place cannot be read or written.
        """
        holder = Holder(
            job_id,
            subject,
            secrets.token_hex(8),
            socket.gethostname(),
            os.getpid(),
            int(time.time()),
            this_machine(),
            process_started(),
        )
        while True:
            place.make_private(directory)
            held = _generations(place, directory)
            if behind is not None and max(held, default=0) > behind:
                raise FencedError(f"{subject}: somebody else has claimed it just now.", path=directory)
            generation = 1 + max([*held, *areas_of(place, directory).values()], default=0)
            # Someone else was faster, or the last holder has just released and removed the directory.
            with suppress(FileExistsError, FileNotFoundError):
                place.create(f"{directory}/{_generation_name(generation)}", seal(holder))
                break
        claim = cls(place, directory, generation, holder)
        try:
            claim.verify()
            claim._take_over()
            claim.verify()
        except FencedError:
            claim._leave()
            raise
        return claim

    def verify(self) -> None:
        """Make sure that the claim is still held.

        Raises:
            FencedError: It is not, and never will be again.
            OSError: It cannot be found out now.
        """
        newest = max(_generations(self._place, self._directory), default=0)
        if newest == self.generation and self._reads(newest) == self._holder:
            return
        raise FencedError(self._message(self._reads(newest)), path=self._directory)

    def is_held(self) -> bool:
        """Whether `verify` would pass."""
        try:
            self.verify()
        except FencedError:
            return False
        return True

    def release(self, *, keep_area: bool = False) -> None:
        """Give the claim up; its area goes too, unless it is to be found by the next claimant.

        What is in the area of a claim that was lost belongs to the newer claimant and is left alone.
        """
        if not self.is_held():
            self._leave()
            return
        if not keep_area:
            self._place.remove_tree(self.area)
        self._place.remove(f"{self._directory}/{_generation_name(self.generation)}")
        self._place.remove_empty(self._directory)

    @property
    def token(self) -> str:
        """Random, and this claim's alone."""
        return self._holder.token

    def _leave(self) -> None:
        self._place.remove_empty(self.area)
        self._place.remove_empty(self._directory)

    def _take_over(self) -> None:
        """Adopt older areas, oldest first, so that of files of one name the newest stays."""
        try:
            self._place.make_private(self.area)
        except FileNotFoundError:
            # A newer claimant has taken it away in the moment it was made.
            self.verify()
            raise
        # A listing may miss a directory that an older claimant is renaming just now; the next one sees it.
        for _ in range(2):
            while older := self._older_areas():
                # Another claimant may be faster: it is older, and has lost, or newer, and we have.
                with suppress(FileNotFoundError):
                    self._place.adopt(f"{self._directory}/{older[0]}", self.area)
        for generation in _generations(self._place, self._directory):
            if generation < self.generation:
                self._place.remove(f"{self._directory}/{_generation_name(generation)}")

    def _older_areas(self) -> list[str]:
        found = areas_of(self._place, self._directory)
        own = self.area.rpartition("/")[2]
        mine = [name for name, at in found.items() if at <= self.generation and name != own]
        # What a claimant had not emptied when it died is older than its own area, whose name is shorter.
        return sorted(mine, key=lambda name: (found[name], -len(name)))

    def _reads(self, generation: int) -> Holder | None:
        return _read_holder(self._place, self._directory, generation)

    def _message(self, other: Holder | None) -> str:
        mine = self._holder
        what = f"{mine.subject}: job {mine.job_id} (claim {self.generation}) does not own it any more. "
        if other is None or other == mine:
            return what + (
                "The claim is gone: a newer driver of this lineage has taken over and ended, or the directory "
                f"'{self._directory}' was deleted or damaged. This driver stops and publishes nothing."
            )
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(other.since))
        return what + (
            f"Job {other.job_id}, started from a snapshot of the same lineage on {other.host} (process "
            f"{other.pid}) at {at} UTC, has taken over. This driver stops and publishes nothing; end the other "
            "one first if this one was to go on."
        )


def newest_claim(place: Place, directory: str) -> tuple[int, Holder | None]:
    """The newest generation, 0 if there is none, and who says to hold it; None if that cannot be read (any more).

    Raises:
        OSError: The place cannot be read.
    """
    newest = max(_generations(place, directory), default=0)
    return newest, _read_holder(place, directory, newest) if newest else None


def areas_of(place: Place, directory: str) -> dict[str, int]:
    """Names of the areas in a claim's directory, with their generations."""
    found = {name: AREA.fullmatch(name) for name in place.names(directory)}
    return {name: int(match[1]) for name, match in found.items() if match is not None}


def _generations(place: Place, directory: str) -> list[int]:
    matches = [_GENERATION.fullmatch(name) for name in place.names(directory)]
    return [int(match[1]) for match in matches if match is not None]


def _read_holder(place: Place, directory: str, generation: int) -> Holder | None:
    try:
        data = place.read(f"{directory}/{_generation_name(generation)}")
        return unseal(data, Holder)
    except (FileNotFoundError, DamagedNote):
        return None


def _generation_name(generation: int) -> str:
    return f".generation-{generation:08d}"
