"""What every test shares: Hypothesis profiles, and programs that may be missing on a user's machine but not in CI."""

import os
import shutil
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

# A noisy machine makes single examples slow; the per-test time limit is what stops a hang.
settings.register_profile("ci", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("ci"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

REQUIRED = frozenset(filter(None, os.environ.get("RAFKA_LAB_REQUIRE", "").split(",")))


def missing(name: str, why: str) -> NoReturn:
    """Skips the test that needs `name`, or fails it where RAFKA_LAB_REQUIRE names that."""
    if name in REQUIRED:
        pytest.fail(f"{why} (RAFKA_LAB_REQUIRE names {name})")
    pytest.skip(why)


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """`program("kcat")` is its path. Without it the test skips, or fails if RAFKA_LAB_REQUIRE names it."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            missing(name, f"{name} is not on PATH; install it to run this test")
        return path

    return find


@pytest.fixture(scope="session")
def spark_java() -> None:
    """For tests that start Spark, which needs a Java that is new enough."""
    from rafka_lab.java import INSTALL_JAVA, find_java

    if find_java() is None:
        missing("java", INSTALL_JAVA)
