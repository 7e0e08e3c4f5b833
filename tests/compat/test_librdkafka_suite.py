"""librdkafka's own C tests, run against the cluster: those of `librdkafka/ALLOW` must pass.

They come with an npm package and take minutes to build, so only `make soak` runs them. `RAFKA_LAB_LIBRDKAFKA` names a
`tests` folder that is built already.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rafka_lab import Lab

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
ALLOW = (Path(__file__).parent / "librdkafka" / "ALLOW").read_text().split()
BUILD_SECONDS = 1800
RUN_SECONDS = 300
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

pytestmark = [pytest.mark.soak, pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)]


@pytest.fixture(scope="session")
def suite(program: Callable[[str], str]) -> Path:
    """The folder with the built test-runner."""
    given = os.environ.get("RAFKA_LAB_LIBRDKAFKA")
    if given:
        return Path(given)
    npm, make = program("npm"), program("make")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rafka-lab" / "librdkafka"
    library = cache / "package" / "deps" / "librdkafka"
    if not (library / "tests" / "test-runner").exists():
        cache.mkdir(parents=True, exist_ok=True)
        archive = _run(npm, "pack", "--silent", PACKAGE, folder=cache).strip()
        _run("tar", "xzf", archive, "package/deps/librdkafka", folder=cache)
        _run("./configure", "--disable-ssl", "--disable-gssapi", "--disable-curl", folder=library)
        _run(make, "-j2", "libs", folder=library)
        _run(make, "-j2", "build", folder=library / "tests")
    return library / "tests"


def _run(*words: str, folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert done.returncode == 0, f"{words}: {done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def cluster() -> Iterator[Lab]:
    """librdkafka's tests expect four partitions by default."""
    with Lab(default_partitions=4, trace_ratio=0) as running:
        yield running


@pytest.mark.parametrize("name", ALLOW)
def test_librdkafka(suite: Path, cluster: Lab, tmp_path: Path, name: str) -> None:
    settings = tmp_path / "test.conf"
    settings.write_text(f"bootstrap.servers={cluster.bootstrap}\n")
    environment = {
        "TESTS": name.partition("_")[0],
        "RDKAFKA_TEST_CONF": str(settings),
        "LD_LIBRARY_PATH": f"{suite.parent / 'src'}:{suite.parent / 'src-cpp'}",
    }
    done = subprocess.run(
        ["./test-runner", "-L", "-K", "-p1"],
        cwd=suite,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=RUN_SECONDS,
        env=os.environ | environment,
    )
    said = _COLOUR.sub("", done.stdout + done.stderr)
    assert re.search(rf"\|\s*{name}\s*\|\s*PASSED\s*\|", said), said[-4000:]
    assert not cluster.crashes
