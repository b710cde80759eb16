"""Settings shared by all tests; fixtures live next to the tests that use them."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines that run the suite are small and shared: time limits per example would only measure the neighbours.
settings.register_profile("tidemark", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidemark")
