"""A cluster and an IPython shell for tests of magics and widgets."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from rafka_lab import Lab

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Lab]:
    with Lab(default_partitions=2) as running:
        yield running
        assert not running.crashes


@pytest.fixture
def topic() -> str:
    """A name that no topic has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def shell(cluster: Lab) -> Iterator[Any]:
    """A shell as a notebook has it, with the extension loaded and the cluster as `lab`."""
    main = sys.modules["__main__"]  # a shell takes its place
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "lab")
    shell.user_ns["lab"] = cluster
    yield shell
    shell.user_ns.clear()
    shell.history_manager.end_session()
    sys.modules["__main__"] = main
