"""Clusters that several test modules share, and the folder beside the tests as a place to import from."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

with warnings.catch_warnings():
    # kafka-python reads its message definitions in a way that Python 3.11 calls old; that is not ours to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer  # noqa: F401

from gateway_cluster import Cluster, running


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A gateway and one fake broker. Tests use topics of their own."""
    with running(tmp_path_factory.mktemp("gateway")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A gateway and three fake brokers: partition p of every topic is at broker p modulo 3."""
    with running(tmp_path_factory.mktemp("three"), brokers=3) as cluster:
        yield cluster
