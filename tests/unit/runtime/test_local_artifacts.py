"""Files of a job in the local executor: importable, found by name, and gone with the job."""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tidemark import Configuration, MapFunction, StreamExecutionEnvironment
from tidemark.errors import ConfigError


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.target": "local"})
    )


def results(env: StreamExecutionEnvironment, function: object) -> list[object]:
    return list(env.from_collection([1, 2]).map(function).execute_and_collect())


def add_lib(value: int) -> int:
    from shipped_lib import number

    return value + number


class AddInSlot(MapFunction):
    """Has `open`, so it runs in a slot."""

    def open(self, runtime_context: object) -> None:
        from shipped_lib import number

        self.number = number

    def map(self, value: int) -> int:
        return value + self.number


@pytest.mark.parametrize("function", [add_lib, AddInSlot()])
@pytest.mark.parametrize("number", [10, 20])
def test_python_file_is_importable_for_its_job_only(
    env: StreamExecutionEnvironment, tmp_path: Path, function: object, number: int
) -> None:
    (tmp_path / "shipped_lib.py").write_text(f"number = {number}\n")
    env.add_python_file(str(tmp_path / "shipped_lib.py"))
    before = list(sys.path)

    assert results(env, function) == [1 + number, 2 + number]

    assert sys.path == before
    assert "shipped_lib" not in sys.modules


class Stubborn(ModuleType):
    """A module that answers no question, as lazy ones whose import fails do."""

    @property
    def __file__(self) -> str:  # type: ignore[override]
        raise RuntimeError("not now")


def test_a_job_ends_even_if_its_files_cannot_be_taken_away(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_lib.py").write_text("number = 10\n")
    env.add_python_file(str(tmp_path / "shipped_lib.py"))
    before = list(sys.path)
    monkeypatch.setitem(sys.modules, "stubborn", Stubborn("stubborn"))
    try:
        job = env.from_collection([1, 2]).map(add_lib).execute_and_collect().get_job_client()
        assert job.get_job_execution_result().result(60) is not None
    finally:
        sys.path[:] = before
        sys.modules.pop("shipped_lib", None)


def from_both(value: int) -> tuple[int, int]:
    import shipped_lib
    import shipped_pack.shipped_lib as inner

    return value + shipped_lib.number, value + inner.number


def test_directory_is_importable_by_its_modules_and_as_a_package(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    package = tmp_path / "shipped_pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "shipped_lib.py").write_text("number = 3\n")
    env.add_python_file(f"file://{package}")

    assert results(env, from_both) == [(4, 4), (5, 5)]


def read_data(value: int) -> int:
    return value + int(Path("data/data.txt").read_text())


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_archive_is_unpacked_under_its_target_directory(
    env: StreamExecutionEnvironment, tmp_path: Path, form: str
) -> None:
    (tmp_path / "data.txt").write_text("5")
    archive = tmp_path / f"archive.{form}"
    if form == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            file.write(tmp_path / "data.txt", "data.txt")
    else:
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(tmp_path / "data.txt", "data.txt")
    env.add_python_archive(str(archive), "data")

    assert results(env, read_data) == [6, 7]

    assert os.listdir(".") == []


def read_cached(value: int) -> int:
    return value + int(Path("the-number").read_text()) + os.access("the-number", os.X_OK)


@pytest.mark.parametrize("executable", [False, True])
def test_cached_file_is_found_by_its_name(
    env: StreamExecutionEnvironment, tmp_path: Path, executable: bool
) -> None:
    (tmp_path / "file").write_text("5")
    os.symlink("/gone", "the-number")
    env.register_cached_file(str(tmp_path / "file"), "the-number", executable)

    assert results(env, read_cached) == [6 + executable, 7 + executable]

    assert os.listdir(".") == []


def test_what_is_in_the_working_directory_is_not_replaced(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("5")
    Path("mine").write_text("mine")
    (tmp_path / "shipped_lib.py").touch()
    env.add_python_file(str(tmp_path / "shipped_lib.py"))
    env.register_cached_file(str(tmp_path / "file"), "mine")
    before = list(sys.path)

    with pytest.raises(ConfigError, match="'mine' cannot be put into the working directory"):
        results(env, add_lib)

    assert Path("mine").read_text() == "mine"
    assert sys.path == before


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("/gone/file", "name", "does not exist"),
        ("hdfs://host/file", "name", "local disks only"),
        (__file__, "../name", "plain name"),
    ],
)
def test_file_that_cannot_be_laid_out_is_refused(
    env: StreamExecutionEnvironment, path: str, name: str, message: str
) -> None:
    env.register_cached_file(path, name)

    with pytest.raises(ConfigError, match=message):
        results(env, add_lib)


def test_archive_that_is_none_is_refused(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_text("no")
    env.add_python_archive(str(tmp_path / "no.zip"))

    with pytest.raises(ConfigError, match="cannot be unpacked"):
        results(env, add_lib)


def wheel_of(folder: Path, number: int) -> None:
    """A wheel of pure Python, as `pip download` would have put it there."""
    folder.mkdir(exist_ok=True)
    info = "cached_package-1.0.dist-info"
    with zipfile.ZipFile(folder / "cached_package-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cached_package.py", f"number = {number}\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: cached-package\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def add_package(value: int) -> int:
    from cached_package import number

    return value + number


def test_requirements_are_installed_from_their_cache(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever may write in the current directory does not decide what pip is.
    (tmp_path / "pip.py").write_text("raise SystemExit('theirs')")
    monkeypatch.chdir(tmp_path)
    wheel_of(tmp_path / "cache", 30)
    (tmp_path / "requirements.txt").write_text("cached-package==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "cache"))
    before = list(sys.path)

    assert results(env, add_package) == [31, 32]

    assert sys.path == before
    assert "cached_package" not in sys.modules


def test_a_package_that_is_not_in_the_cache_is_named(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    wheel_of(tmp_path / "cache", 30)
    (tmp_path / "requirements.txt").write_text("some-other-package==2.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "cache"))

    with pytest.raises(ConfigError, match="some-other-package"):
        results(env, add_package)
