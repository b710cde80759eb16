"""Settings shared by all tests; fixtures live next to the tests that use them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.campaign import SEED

# Machines that run the suite are small and shared: time limits per example would only measure the neighbours.
# One tree has one verdict: the examples follow from the tests alone, and nothing is remembered between runs.
settings.register_profile(
    "tidemark", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None
)
# `make chaos`: examples follow from --hypothesis-seed, which it prints.
settings.register_profile("chaos", settings.get_profile("tidemark"), derandomize=False, print_blob=True)
settings.load_profile("chaos" if SEED else "tidemark")
# Hypothesis also draws constants from the source of local modules loaded so far. Which these are depends on the
# tests that ran before in the same worker, so a seed alone would not say what the examples are.
providers._get_local_constants = providers.Constants


@pytest.fixture(autouse=True, scope="session")
def _registry_of_jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jobs of tests register in a directory of their own, not in the user's home."""
    before = os.environ.get("TIDEMARK_HOME")
    os.environ["TIDEMARK_HOME"] = str(tmp_path_factory.mktemp("registry"))
    yield
    if before is None:
        del os.environ["TIDEMARK_HOME"]
    else:
        os.environ["TIDEMARK_HOME"] = before


@pytest.fixture(autouse=True, scope="session")
def _without_syncs() -> Iterator[None]:
    """Tests kill processes, never the machine, so what the kernel has is kept; on a slow disk syncs are an hour."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What `tidemark security init` says to set, with the files it makes."""
    from tidemark.tls.making import make_certificates

    return make_certificates(str(tmp_path_factory.mktemp("certificates") / "tls"))


# Tests of whole jobs run in both execution modes: those of these directories, and modules and tests that say so with
# `pytest.mark.modes("epochs", "auto")`. A test that is about one mode names it, with its reason:
# `pytest.mark.modes("epochs", reason="...")`. Scripted jobs want "continuous" by name.
_WHOLE_JOBS = tuple(Path(__file__).parent / name for name in ("programs", "recovery"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test of a whole job its execution modes."""
    marker = metafunc.definition.get_closest_marker("modes")
    on_spark = any(metafunc.definition.get_closest_marker(name) for name in ("spark", "cluster"))
    if marker is not None:
        modes = marker.args
        assert len(modes) > 1 or marker.kwargs.get("reason"), (
            f"{metafunc.definition.name}: why only one mode?"
        )
    else:
        whole = metafunc.definition.path.parent in _WHOLE_JOBS and not on_spark
        modes = ("epochs", "auto") if whole else ()
    if modes:
        metafunc.parametrize("_execution_mode", modes, indirect=True)


@pytest.fixture(autouse=True)
def _execution_mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the jobs of this test in the mode that it was given; see `pytest_generate_tests`."""
    mode = getattr(request, "param", None)
    if mode is not None:
        monkeypatch.setenv("TIDEMARK_EXECUTION_MODE", mode)
