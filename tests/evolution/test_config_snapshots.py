"""Serializer snapshots of before Flink 1.7, and the four steps that leave them behind."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.evolution.conftest import Define
from tests.evolution.containers import BACKENDS
from tests.evolution.jobs import KEYS, found, savepoint_of, start
from tests.recovery.local_jobs import DEADLINE

from tidemark.errors import JobExecutionException, StateMigrationException
from tidemark.state.serializers import (
    CompatibilityResult,
    NullableSerializer,
    TypeSerializer,
    dump_serializer_snapshot,
    load_serializer_snapshot,
    resolve_compatibility,
)

OLD_CLASSES = """
class WordConfig(TypeSerializerConfigSnapshot):
    def __init__(self, separator=""):
        self.separator = separator
    def get_version(self):
        return 3
    def write(self, out):
        out.write_utf(self.separator)
    def read(self, in_):
        assert self.get_read_version() == 3
        self.separator = in_.read_utf()
"""
SERIALIZER = """
class Words(TypeSerializer):
    def __init__(self, separator):
        self.separator = separator
    def serialize(self, element, stream):
        text = self.separator.join(element).encode()
        stream.write_int(len(text))
        stream.write(text)
    def deserialize(self, stream):
        return stream.read_fully(stream.read_int()).decode().split(self.separator)
"""
ASKED = """
    def ensure_compatibility(self, config_snapshot):
        same = config_snapshot.separator == self.separator
        return CompatibilityResult.compatible() if same else CompatibilityResult.requires_migration()
"""
OLD_SNAPSHOT = """
    def snapshot_configuration(self):
        return WordConfig(self.separator)
"""
NEW_SNAPSHOT = """
    def snapshot_configuration(self):
        return WordsSnapshot(self.separator)
class WordsSnapshot(TypeSerializerSnapshot):
    def __init__(self, separator=""):
        self.separator = separator
    def get_current_version(self):
        return 1
    def write_snapshot(self, out):
        out.write_utf(self.separator)
    def read_snapshot(self, read_version, in_, user_code_class_loader=None):
        self.separator = in_.read_utf()
    def resolve_schema_compatibility(self, new_serializer):
        same = new_serializer.separator == self.separator
        answers = TypeSerializerSchemaCompatibility
        return answers.compatible_as_is() if same else answers.compatible_after_migration()
    def restore_serializer(self):
        return Words(self.separator)
"""
STATE = """
TYPE = Words("{separator}")
VALUES = [["a", "b"], ["c"]]
"""

BEFORE = OLD_CLASSES + SERIALIZER + ASKED + OLD_SNAPSHOT
BETWEEN = OLD_CLASSES + SERIALIZER + ASKED + NEW_SNAPSHOT
AFTER = SERIALIZER + NEW_SNAPSHOT


@pytest.fixture
def program(define: Define) -> Any:
    """Deploys a version of the program, whose words are separated so."""

    def deploy(source: str, separator: str = "-") -> ModuleType:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return define(source + STATE.format(separator=separator))

    return deploy


def savepoint_from(program: ModuleType, backend: Any, path: str, directory: Path) -> str:
    """Start from a savepoint, and stop with another one."""
    board, results = start(program, 2, backend, path, bounded=False)
    board.wait_set("emitted")
    stopped = results.get_job_client().stop_with_savepoint(False, str(directory)).result(DEADLINE)
    list(results)
    return str(stopped)


@pytest.mark.parametrize("separator", ["-", "+"], ids=["as is", "after migration"])
@pytest.mark.parametrize("backends", [("heap", "rocksdb"), ("rocksdb", "heap")], ids=str)
def test_the_four_steps_leave_the_old_classes_behind(
    program: Any, tmp_path: Path, backends: tuple[str, str], separator: str
) -> None:
    expected = {key: [["a", "b"], ["c"]][key % 2] for key in range(KEYS)}
    first, second = BACKENDS[backends[0]], BACKENDS[backends[1]]

    # What there was: the savepoint holds the configuration and the serializer itself.
    old = savepoint_of(program(BEFORE), 2, first(), tmp_path)
    # 1 and 2: a new snapshot is written, and returned. 3: the job is restored, and a savepoint is taken.
    new = savepoint_from(program(BETWEEN, separator), second(), old, tmp_path)
    # 4: the old classes, and ensure_compatibility, are deleted.
    values = found(program(AFTER, separator), 1, first(), new)

    assert values == expected


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_old_classes_that_are_deleted_too_early_are_missed(
    program: Any, tmp_path: Path, backend: str
) -> None:
    old = savepoint_of(program(BEFORE), 2, BACKENDS[backend](), tmp_path)

    with pytest.raises(JobExecutionException, match="WordConfig") as failure:
        found(program(AFTER), 2, BACKENDS[backend](), old)

    assert isinstance(failure.value.__cause__, StateMigrationException)
    printed = "".join(traceback.format_exception(failure.value))
    assert "tidemark.errors.StateMigrationException: " in printed
    assert "SchemaIncompatibleError" not in printed


def test_a_serializer_is_stored_with_its_old_snapshot_and_read_when_needed(program: Any) -> None:
    stored = dump_serializer_snapshot(program(BEFORE, "-").TYPE)

    snapshot = load_serializer_snapshot(stored)
    serializer = snapshot.restore_serializer()

    assert (type(serializer).__name__, serializer.separator) == ("Words", "-")
    assert dump_serializer_snapshot(serializer) == stored
    nested = load_serializer_snapshot(dump_serializer_snapshot(NullableSerializer(serializer)))
    assert nested.restore_serializer().from_bytes(b"\x01\0\0\0\x03a-b") == ["a", "b"]


def test_a_serializer_without_ensure_compatibility_says_what_to_do(program: Any) -> None:
    stored = dump_serializer_snapshot(program(BEFORE).TYPE)
    silent = program(OLD_CLASSES + SERIALIZER + NEW_SNAPSHOT).TYPE

    with pytest.raises(StateMigrationException, match=r"WordConfig.*Words needs ensure_compatibility\(\)"):
        resolve_compatibility(stored, silent)


class Stubborn(TypeSerializer[Any]):
    """Answers something else, and cannot be pickled."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def serialize(self, element: Any, stream: Any) -> None:
        raise AssertionError

    def deserialize(self, stream: Any) -> Any:
        raise AssertionError

    def snapshot_configuration(self) -> Any:
        return self.config

    def ensure_compatibility(self, config_snapshot: Any) -> Any:
        return True

    def __reduce__(self) -> Any:
        raise TypeError("not me")


def test_what_cannot_be_stored_or_is_no_answer_is_refused(program: Any) -> None:
    module = program(BEFORE)
    stored = dump_serializer_snapshot(module.TYPE)

    with pytest.raises(ValueError, match="cannot be pickled: not me"):
        dump_serializer_snapshot(Stubborn(module.WordConfig()))
    with pytest.raises(TypeError, match="must return a CompatibilityResult, got True"):
        resolve_compatibility(stored, Stubborn(module.WordConfig()))
    assert not CompatibilityResult.compatible().is_requires_migration()


def test_defining_an_old_snapshot_warns(define: Define) -> None:
    with pytest.warns(DeprecationWarning, match="WordConfig is a TypeSerializerConfigSnapshot"):
        define(OLD_CLASSES)
