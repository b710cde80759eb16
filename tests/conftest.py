"""Settings shared by all tests; fixtures live next to the tests that use them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Machines that run the suite are small and shared: time limits per example would only measure the neighbours.
settings.register_profile("tidemark", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidemark")


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
