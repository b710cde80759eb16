"""Every storage we ship, against the contract."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tidemark.checkpoint.storage import FileSystemStorage, MemoryStorage
from tidemark.testing.storage_contract import StorageContract


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()

    @pytest.fixture
    def root(self) -> str:
        return "driver/checkpoints"


class TestLocalFiles(StorageContract):
    @pytest.fixture
    def storage(self) -> FileSystemStorage:
        return FileSystemStorage()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestFileUri(TestLocalFiles):
    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}"


class TestObjectStoreThroughFsspec(TestLocalFiles):
    @pytest.fixture
    def root(self) -> str:
        return f"memory://tests/{uuid.uuid4().hex}"


class TestRenamingFileSystemThroughFsspec(TestLocalFiles):
    """The way of HDFS and the like: a temporary name and a rename."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"local://{tmp_path}"
