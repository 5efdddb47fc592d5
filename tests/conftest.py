"""Fixtures and profiles that every test shares."""

import os

import pytest
from hypothesis import HealthCheck, settings

from gradops.testing import LEVELS, forced, runnable

settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("explore", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("GRADOPS_HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config):
    config.addinivalue_line("markers", "large: needs several GiB of free memory; skipped where there is less")


@pytest.fixture(params=LEVELS)
def level(request):
    """Every instruction set level that this CPU runs, forced while the test runs."""
    if not runnable(request.param):
        pytest.skip(f"this CPU does not run {request.param}")
    with forced(request.param):
        yield request.param
