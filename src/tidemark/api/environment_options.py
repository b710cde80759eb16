"""Settings of an environment that are accepted, kept and handed on, with little meaning of their own."""

from __future__ import annotations

from typing import Self, TypeVar

from tidemark.api.executor import CachedFile, PythonArtifacts
from tidemark.api.slot_sharing import SlotSharingGroup
from tidemark.config import Configuration, Options
from tidemark.config.loader import overlay
from tidemark.config.option import ConfigOption
from tidemark.types.time import TimeLike, to_millis

__all__ = ["EnvironmentOptions"]

T = TypeVar("T")

_UNSET_BUFFER_TIMEOUT = 100


class EnvironmentOptions:
    """Mixed into the environment."""

    def __init__(self, base: Configuration) -> None:
        """Start with nothing set over `base`: file, variables and user configuration, merged."""
        self._base = base
        self._programmed = Configuration()
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}
        self._jars: list[str] = []
        self._classpaths: list[str] = []
        self._files: list[str] = []
        self._archives: list[tuple[str, str | None]] = []
        self._requirements: str | None = None
        self._requirements_cache: str | None = None
        self._executable: str | None = None
        self._cached_files: list[CachedFile] = []

    def set_buffer_timeout(self, timeout_millis: TimeLike) -> Self:
        """Let a task of a continuous job wait that long after a small batch; without effect in epochs.

        Raises:
            ConfigError: Below -1.
        """
        self._programmed.set(Options.BUFFER_TIMEOUT, to_millis(timeout_millis, "timeout_millis"))
        return self

    def get_buffer_timeout(self) -> int:
        """What was set, in ms; 100 if nothing was, though nothing waits then."""
        timeout = self._option(Options.BUFFER_TIMEOUT)
        return _UNSET_BUFFER_TIMEOUT if timeout is None else timeout

    def disable_operator_chaining(self) -> Self:
        """Accepted for compatibility; has no effect on results."""
        self._programmed.set(Options.OPERATOR_CHAINING, False)
        return self

    def is_chaining_enabled(self) -> bool:
        """What was set; on by default."""
        return self._option(Options.OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """What was configured; on by default."""
        return self._option(Options.CHAIN_DIFFERENT_MAX_PARALLELISM)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Accepted for compatibility; has no effect."""
        self._slot_sharing_groups[slot_sharing_group.get_name()] = slot_sharing_group
        return self

    def enable_changelog_state_backend(self, enabled: bool) -> Self:
        """Accepted for compatibility; has no effect."""
        self._programmed.set(Options.CHANGELOG, bool(enabled))
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """What was set, None if nothing."""
        return self._option(Options.CHANGELOG)

    def add_jars(self, *jars_path: str) -> None:
        """Accepted for compatibility; there is no Java code of the user's to run."""
        self._jars += jars_path

    def get_jars(self) -> list[str]:
        """What was added."""
        return list(self._jars)

    def add_classpaths(self, *classpaths: str) -> None:
        """Accepted for compatibility; there is no Java code of the user's to run."""
        self._classpaths += classpaths

    def get_classpaths(self) -> list[str]:
        """What was added."""
        return list(self._classpaths)

    def add_python_file(self, file_path: str) -> None:
        """Ship a Python file, package directory or zip to the workers and put it on their path."""
        self._files.append(file_path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive to the workers and unpack it there."""
        self._archives.append((archive_path, target_dir))

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Let user code import what a requirements file names.

        Args:
            requirements_file_path: The file. By itself it is only shipped: nothing is downloaded at run time, so
                its packages have to be installed on the workers.
            requirements_cache_dir: Directory with the packages (`pip download -d DIR -r FILE`). They are installed
                from there by the driver and shipped; packages of pure Python only.
        """
        self._requirements = requirements_file_path
        self._requirements_cache = requirements_cache_dir

    def set_python_executable(self, python_exec: str) -> None:
        """Run user code with this interpreter on the workers."""
        self._executable = python_exec

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Ship a file to the workers under a name."""
        self._cached_files.append(CachedFile(file_path, name, executable))

    def _option(self, option: ConfigOption[T]) -> T:
        return overlay(self._base, self._programmed).get(option)

    def _artifacts(self) -> PythonArtifacts:
        return PythonArtifacts(
            files=tuple(self._files),
            archives=tuple(self._archives),
            requirements=self._requirements,
            requirements_cache=self._requirements_cache,
            executable=self._executable,
            cached_files=tuple(self._cached_files),
        )
