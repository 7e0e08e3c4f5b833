"""One cluster for all tests with real clients, the kcat program, and topics of the tests' own."""

import sys
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rafka_lab import Lab

sys.path.insert(0, str(Path(__file__).parent))

from kcat_program import Kcat

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its schemas in a deprecated way
    import kafka  # noqa: F401


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A cluster that no test harms. Those that kill nodes make their own."""
    with Lab(default_partitions=1) as running:
        yield running
        assert not running.crashes


@pytest.fixture(scope="session")
def bootstrap(lab: Lab) -> str:
    return lab.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic_name() -> str:
    """A name that no topic has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(admin: AdminClient) -> Callable[..., str]:
    """Makes a topic: `new_topic(partitions=3, **{"retention.ms": "1000"})` is its name."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(20)
        return name

    return make


@pytest.fixture(scope="session")
def kcat(program: Callable[[str], str], bootstrap: str) -> Kcat:
    return Kcat(program("kcat"), bootstrap)
