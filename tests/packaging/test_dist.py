"""The packages of `make dist`: the same bytes every time, and enough to run the README's program elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import make_dist
from tests.docs.markdown import ROOT, blocks

EPOCH = 1_700_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel and source distribution."""
    wheel, sdist = make_dist.build(tmp_path_factory.mktemp("dist"), EPOCH)
    return wheel, sdist


@pytest.fixture
def unlike_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same sources elsewhere, with other times, and a umask under which nobody else may read them."""
    for name in make_dist.SOURCES:
        make_dist._copy(ROOT / name, tmp_path / name)
    for path in tmp_path.rglob("*"):
        os.utime(path, (EPOCH + 4711, EPOCH + 4711))
    monkeypatch.setattr(make_dist, "ROOT", tmp_path)
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("unlike_tree")
def test_another_tree_with_other_times_and_permissions_gives_the_same_bytes(built, tmp_path) -> None:
    again = make_dist.build(tmp_path / "again", EPOCH)

    assert [path.name for path in again] == [path.name for path in built]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_packages_hold_all_that_a_job_needs_and_no_tests(built) -> None:
    wheel, sdist = built

    with zipfile.ZipFile(wheel) as packed, tarfile.open(sdist) as archive:
        in_wheel = set(packed.namelist())
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}

    ours = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "tidemark").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert ours <= in_wheel
    assert {f"src/{name}" for name in ours} | {"pyproject.toml", "README.md", "LICENSE"} <= in_sdist
    assert not [name for name in in_wheel if not name.startswith("tidemark")]
    assert "tidemark/py.typed" in in_wheel


def test_extras_are_those_the_documentation_names(built) -> None:
    with zipfile.ZipFile(built[0]) as packed:
        metadata = packed.read(f"tidemark-{_version()}.dist-info/METADATA").decode()

    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.MULTILINE))
    named = {
        extra
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for extra in re.findall(r"tidemark\[(\w+)\]", page.read_text(encoding="utf-8"))
    }

    assert named >= {"kafka", "s3", "gcs", "hdfs"}
    assert extras == named | {"dev"}


@pytest.fixture(scope="module")
def python(built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel."""
    return _environment_with(built[0], tmp_path_factory.mktemp("user") / "venv")


def test_the_lock_names_every_package_once() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    names = [line.partition("==")[0].lower() for line in lines if not line.startswith("#")]

    assert len(names) == len(set(names))


def test_the_wheel_tells_mypy_its_types(python, tmp_path) -> None:
    """Outside of the repository, whose settings and sources it must not see."""
    program = tmp_path / "user_program.py"
    program.write_bytes((ROOT / "tests" / "packaging" / "user_program.py").read_bytes())

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "--cache-dir",
         str(tmp_path / "cache"), program.name],
        cwd=tmp_path, env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    assert checked.returncode == 0, checked.stdout


def test_the_readmes_program_runs_where_only_the_wheel_is_installed(python, tmp_path) -> None:
    program, output = (
        next(block for block in blocks(ROOT / "README.md") if block.words == words)
        for words in (("python",), ("text", "output"))
    )
    (tmp_path / "count.py").write_text(f"{program.text}\nimport tidemark\nprint(tidemark.__file__)\n")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))},
        "TIDEMARK_EXECUTION_TARGET": "local",
        "TIDEMARK_HOME": str(tmp_path / "home"),
    }

    ran = subprocess.run(
        [str(python), "count.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )

    *printed, where = ran.stdout.splitlines()
    assert (ran.returncode, printed) == (0, output.text.splitlines()), ran.stderr
    assert Path(where).is_relative_to(python.parents[1])


def _environment_with(wheel: Path, place: Path) -> Path:
    """The Python of a new environment that has the wheel, and borrows what the wheel depends on from ours."""
    venv.create(place, symlinks=True, with_pip=False)
    python = place / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", "--no-compile", str(wheel)],
        check=True,
    )  # fmt: skip
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    # A path named by a .pth file is searched, but .pth files in it are not read: our editable installation is unseen.
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _version() -> str:
    text = (ROOT / "src" / "tidemark" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)[1]


# What may stand first in a line of a Dockerfile.
INSTRUCTIONS = {
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "LABEL",
    "RUN",
    "USER",
    "VOLUME",
    "WORKDIR",
}


def test_the_image_is_described_in_instructions_that_docker_reads() -> None:
    """There is no docker to build it with: its form, and that of its shell lines, is all that is checked."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line.split(None, 1) for line in text.replace("\\\n", " ").splitlines() if line.strip()]

    assert {name for name, _ in lines} <= INSTRUCTIONS
    assert lines[0][0] == "FROM"
    for name, argument in lines:
        if name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in json.loads(argument))
        if name == "RUN":
            shell = re.sub(r"^(--\S+\s+)+", "", argument)
            subprocess.run(["sh", "-n", "-c", shell], check=True)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    assert set(re.findall(r"from=(\w+)", text)) <= stages


def test_the_image_runs_the_wheel_and_names_no_registry() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(
        ">="
    )

    assert images
    assert all("/" not in image for image in images)
    assert all(
        tuple(map(int, re.search(r":(\d+\.\d+)", image)[1].split("."))) >= tuple(map(int, oldest.split(".")))
        for image in images
    )
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert all((ROOT / name).exists() for line in copied for name in line.split())
