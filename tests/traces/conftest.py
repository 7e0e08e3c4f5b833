"""A real collector process for the tests of this folder."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))  # sample_traces

from collector_process import Running, finish, start
from sink import Sink

from traces.wiring import Provider, configure


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One collector for a module: tests tell their spans apart by service and trace id."""
    running = start(tmp_path_factory.mktemp("collector") / "traces.db")
    yield running
    finish(running)


@pytest.fixture
def start_collector(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts collectors on files of the test's own folder."""
    started: list[Running] = []

    def begin(*arguments: str, name: str = "traces.db") -> Running:
        started.append(start(tmp_path / name, *arguments))
        return started[-1]

    yield begin
    for running in started:
        finish(running)


@pytest.fixture
def sink() -> Iterator[Sink]:
    opened = Sink()
    yield opened
    opened.close()


@pytest.fixture
def wire() -> Iterator[Callable[..., Provider]]:
    made: list[Provider] = []

    def make(endpoint: str, ratio: float = 1.0, **environ: str) -> Provider:
        made.append(configure("node", endpoint, ratio, install=False, environ=environ))
        return made[-1]

    yield make
    for provider in made:
        provider.shutdown(0.1)
