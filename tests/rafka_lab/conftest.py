"""One cluster for the tests that harm no node."""

import uuid
from collections.abc import Iterator

import pytest

from rafka_lab import Lab


@pytest.fixture(scope="session")
def shared_lab() -> Iterator[Lab]:
    """Two partitions a topic, two brokers, every request traced."""
    with Lab(brokers=2, default_partitions=2) as running:
        yield running
        assert not running.crashes


@pytest.fixture
def topic() -> str:
    """A name that no topic has."""
    return f"t-{uuid.uuid4().hex[:12]}"
