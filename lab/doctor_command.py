"""`rafka-lab doctor`: what is there, what is missing, and how to get it. Exit code 1: something needed is missing."""

import argparse
import importlib.metadata
import json
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rafka_lab.java import INSTALL_JAVA, JAVA_MINIMUM, find_java, java_version
from traces.errors import TracesError
from traces.jaeger_program import PROGRAMS, URL_VARIABLE, find_program, find_url

PYTHON_MINIMUM = (3, 11)
KAFKA_PORT = 9092
# A temporary lab and its logs; below this a notebook may meet a full disk that it did not ask for.
ROOM_BYTES = 1_000_000_000
_PACKAGES = (
    "confluent-kafka",
    "iroh",
    "jupyterlab",
    "anywidget",
    "altair",
    "papermill",
    "pandas",
    "pyarrow",
    "pyspark",
)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


class Finding(NamedTuple):
    """One line. `state` is ok, note (a part of the lab does without) or missing (needed)."""

    what: str
    state: str
    detail: str
    hint: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(arguments: argparse.Namespace) -> int:
    found = [finding for check in CHECKS for finding in check()]
    if arguments.json:
        sys.stdout.write(json.dumps([finding._asdict() for finding in found]) + "\n")
    else:
        for finding in found:
            sys.stdout.write(f"{finding.state:<8} {finding.what:<16} {finding.detail}\n")
            if finding.hint:
                sys.stdout.write(f"{'':<25} -> {finding.hint}\n")
    return 1 if any(finding.state == "missing" for finding in found) else 0


def _python() -> Iterator[Finding]:
    new_enough = sys.version_info >= PYTHON_MINIMUM
    hint = "" if new_enough else "install Python 3.11 or newer and run: make PYTHON=python3.11 lab"
    yield Finding(
        "python", "ok" if new_enough else "missing", f"{platform.python_version()}, {platform.system()}", hint
    )


def _packages() -> Iterator[Finding]:
    for name in _PACKAGES:
        try:
            yield Finding(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "missing", "not installed", "run: make lab (or: pip install -e .)")


def _java() -> Iterator[Finding]:
    found = find_java()
    if found is None:
        yield Finding(
            "java", "note", f"no Java {JAVA_MINIMUM} or newer; only the Spark notebook needs it", INSTALL_JAVA
        )
    else:
        yield Finding("java", "ok", f"{java_version(str(found))} at {found}")


def _maven() -> Iterator[Finding]:
    path = shutil.which("mvn")
    if path is None:
        hint = "Debian: apt install maven; macOS: brew install maven"
        yield Finding("maven", "note", "not on PATH; only `rafka-lab bench --peer kafka` needs it, once", hint)
    else:
        yield Finding("maven", "ok", path)


def _kcat() -> Iterator[Finding]:
    path = shutil.which("kcat") or shutil.which("kafkacat")
    if path is None:
        hint = "Debian: apt install kcat; macOS: brew install kcat"
        yield Finding("kcat", "note", "not on PATH; %kcat works without it", hint)
    else:
        yield Finding("kcat", "ok", path)


def _jaeger() -> Iterator[Finding]:
    try:
        place = find_url()
    except TracesError as error:
        yield Finding("jaeger", "missing", str(error), f"set {URL_VARIABLE} right, or unset it")
        return
    program = find_program()
    if place is not None:
        yield Finding("jaeger", "ok", f"{place.url} ({URL_VARIABLE})")
    elif program is not None:
        yield Finding("jaeger", "ok", str(program))
    else:
        hint = f"put one of {', '.join(PROGRAMS)} on PATH, or set {URL_VARIABLE}"
        yield Finding("jaeger", "note", "none; the lab has its own trace store and viewer", hint)


def _browser() -> Iterator[Finding]:
    path = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        hint = "open the address that Jupyter prints in a browser on any machine that reaches it"
        yield Finding("browser", "note", "none found here; Jupyter can be used from another machine", hint)
    else:
        yield Finding("browser", "ok", path)


def _ports() -> Iterator[Finding]:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", KAFKA_PORT))
            yield Finding(f"port {KAFKA_PORT}", "ok", "free")
        except OSError as error:
            hint = "rafka-lab up --port 0 takes a free one; a lab in a notebook does so anyway"
            yield Finding(f"port {KAFKA_PORT}", "note", f"in use ({error.strerror})", hint)


def _room() -> Iterator[Finding]:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    enough = free >= ROOM_BYTES
    hint = "" if enough else "set TMPDIR to a larger disk, or give Lab(data=...) a folder"
    yield Finding("temporary files", "ok" if enough else "note", f"{free / 1e9:.1f} GB free in {folder}", hint)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    _python,
    _packages,
    _java,
    _maven,
    _kcat,
    _jaeger,
    _browser,
    _ports,
    _room,
)
