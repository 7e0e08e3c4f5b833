"""Apache Kafka's jars, from Maven Central into the user's cache folder by the ordinary `mvn`. Nothing is committed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rafka_lab.errors import LabError
from rafka_lab.java import find_java

KAFKA_VERSION = "4.1.1"
# Kafka logs through SLF4J and brings no back end of its own; this one writes to stderr.
_SLF4J_VERSION = "1.7.36"
_DOWNLOAD_SECONDS = 600
_POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>rafka-lab</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>{_SLF4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class PeerUnavailableError(LabError):
    """A peer cannot be started here; the message says what is missing."""


def kafka_is_there() -> bool:
    """Whether Apache Kafka can be started: Java, and its jars or the Maven that gets them."""
    return find_java() is not None and (_folder().exists() or shutil.which("mvn") is not None)


def java_program() -> Path:
    java = find_java()
    if java is None:
        raise PeerUnavailableError(
            "Apache Kafka needs Java 17 or newer: install it (Debian: apt install openjdk-17-jre-headless) or point "
            "JAVA_HOME at it"
        )
    return java


def kafka_jars() -> Path:
    """The folder with Kafka's jars; downloads them the first time."""
    folder = _folder()
    if not folder.exists():
        _download(folder)
    return folder


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "rafka-lab" / f"kafka-{KAFKA_VERSION}"


def _download(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailableError(
            f"Apache Kafka {KAFKA_VERSION} is not in {folder} yet, and there is no mvn to get it: install Maven "
            "(Debian: apt install maven), or compare with a Kafka that runs already: --peer HOST:PORT"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="download-") as place:
        work = Path(place)
        (work / "pom.xml").write_text(_POM)
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        try:
            subprocess.run(command, cwd=work, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS)
        except subprocess.TimeoutExpired:
            raise PeerUnavailableError(
                f"Maven had not got Apache Kafka {KAFKA_VERSION} after {_DOWNLOAD_SECONDS} s: try again"
            ) from None
        except subprocess.CalledProcessError as error:
            raise PeerUnavailableError(
                f"Maven could not get Apache Kafka {KAFKA_VERSION}: {error.stdout.strip()[-500:]}"
            ) from None
        # In one step, so that a folder which is there is whole. Whoever came first has the same jars.
        if not folder.exists():
            (work / "jars").rename(folder)
