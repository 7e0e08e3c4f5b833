"""Finds the Java that Spark needs. Only Spark needs one, so its absence stops nothing else."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# PySpark 4 is built for this release of Java.
JAVA_MINIMUM = 17
INSTALL_JAVA = (
    f"Spark needs Java {JAVA_MINIMUM} or newer: install it "
    "(Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17; conda: openjdk=17) "
    "or point JAVA_HOME at it."
)


def find_java() -> Path | None:
    """The `java` program of JAVA_HOME or PATH, if it is new enough."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home, "bin", "java"))] if home else []
    on_path = shutil.which("java")
    if on_path:
        candidates.append(on_path)
    for program in candidates:
        version = java_version(program)
        if version is not None and version >= JAVA_MINIMUM:
            return Path(program)
    return None


def java_version(program: str) -> int | None:
    """The major version that `program -version` prints; None where it is no working Java."""
    try:
        shown = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found[1]) if found else None


def hint() -> None:
    """Says on stderr what to install when there is no Java; silent otherwise."""
    if find_java() is None:
        sys.stderr.write(f"Note: {INSTALL_JAVA} Everything else works without it.\n")
