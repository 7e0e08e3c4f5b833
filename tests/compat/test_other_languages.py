"""The Java, Go and Node clients, where their toolchain is: small programs beside this file, built outside of it."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import missing

HERE = Path(__file__).parent
# Downloading and building takes its time, once a machine.
BUILD_SECONDS = 400
RUN_SECONDS = 120

pytestmark = pytest.mark.timeout(BUILD_SECONDS + RUN_SECONDS)


def built(name: str, make: Callable[[Path], None]) -> Path:
    """A folder with a copy of the sources, built by `make`; kept in the user's cache until the sources change."""
    sources = sorted(path for path in (HERE / name).iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rafka-lab" / "compat"
    folder = cache / f"{name}-{digest}"
    if (folder / "built").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sources:
        shutil.copy(path, folder)
    try:
        make(folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        missing(
            name, f"{name} clients cannot be built: {error}\n{(error.stderr or b'').decode(errors='replace')[-2000:]}"
        )
    (folder / "built").touch()
    return folder


def command(*words: str, folder: Path, **environment: str) -> None:
    subprocess.run(
        words, cwd=folder, check=True, capture_output=True, timeout=BUILD_SECONDS, env=os.environ | environment
    )


def passes(*words: str, folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-2000:]
    return done.stdout


@pytest.fixture(scope="session")
def java(program: Callable[[str], str]) -> tuple[str, Path]:
    maven, java = program("mvn"), program("java")

    def make(folder: Path) -> None:
        command(maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib", folder=folder)
        sources = ["-cp", "lib/*", "-d", "classes", "Clients.java"]
        command(str(Path(java).resolve().with_name("javac")), *sources, folder=folder)

    return java, built("java", make)


@pytest.mark.parametrize("test", ["codecs", "partitions", "order", "admin", "offsets", "recreate"])
def test_java(java: tuple[str, Path], bootstrap: str, test: str) -> None:
    """Rows 12, 15, 16, 20, 23 and 24 with the client that they name."""
    program, folder = java
    out = passes(program, "-cp", "lib/*:classes", "Clients", bootstrap, test, folder=folder)
    assert out.strip() == "passed"


def test_javas_client_compatibility_test(java: tuple[str, Path], bootstrap: str, new_topic: Callable[..., str]) -> None:
    """Kafka's own check of a broker by its clients; it compares what works with what we say works."""
    program, folder = java
    says = {
        "--offsets-for-times-supported": "True",
        "--cluster-id-supported": "True",
        "--expect-record-too-large-exception": "False",
        "--num-cluster-nodes": "1",
        "--create-topics-supported": "True",
        "--describe-acls-supported": "False",
        "--describe-configs-supported": "True",
        "--idempotent-producer-supported": "True",
    }
    words = ["--bootstrap-server", bootstrap, "--topic", new_topic(), *(word for pair in says.items() for word in pair)]
    out = passes(program, "-cp", "lib/*", "org.apache.kafka.tools.ClientCompatibilityTest", *words, folder=folder)
    assert out.strip().endswith("SUCCESS.")


def test_javas_verifiable_producer(java: tuple[str, Path], bootstrap: str, topic_name: str) -> None:
    program, folder = java
    tool = "org.apache.kafka.tools.VerifiableProducer"
    words = ["--bootstrap-server", bootstrap, "--topic", topic_name, "--max-messages", "1000", "--acks", "-1"]
    out = passes(program, "-cp", "lib/*", tool, *words, folder=folder)
    assert out.count('"name":"producer_send_success"') == 1000
    assert '"sent":1000,"acked":1000' in out


def test_javas_producer_performance(java: tuple[str, Path], bootstrap: str, topic_name: str) -> None:
    program, folder = java
    tool = "org.apache.kafka.tools.ProducerPerformance"
    words = ["--topic", topic_name, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"]
    more = ["--producer-props", f"bootstrap.servers={bootstrap}"]
    out = passes(program, "-cp", "lib/*", tool, *words, *more, folder=folder)
    assert out.splitlines()[-1].startswith("20000 records sent")


@pytest.fixture(scope="session")
def go(program: Callable[[str], str]) -> Path:
    compiler = program("go")
    return built("go", lambda folder: command(compiler, "build", "-o", "clients", ".", folder=folder, CGO_ENABLED="0"))


@pytest.mark.parametrize("test", ["writer-and-reader", "conn"])
def test_row_06_kafka_go(go: Path, bootstrap: str, test: str) -> None:
    assert passes(str(go / "clients"), bootstrap, test, folder=go).strip() == "passed"


@pytest.fixture(scope="session")
def node(program: Callable[[str], str]) -> tuple[str, Path]:
    npm = program("npm")
    install = ("install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
    return program("node"), built("node", lambda folder: command(npm, *install, folder=folder))


@pytest.mark.parametrize("test", ["admin", "produce"])
def test_kafkajs(node: tuple[str, Path], bootstrap: str, test: str) -> None:
    program, folder = node
    assert passes(program, "clients.js", bootstrap, test, folder=folder).strip() == "passed"
