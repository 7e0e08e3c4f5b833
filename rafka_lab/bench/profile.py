"""Flame graphs of gateway and broker under each workload, by py-spy, to find the copies and the waits."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rafka_lab.bench.bench import client
from rafka_lab.bench.sides import OURS, OurSide, Side, folder_for
from rafka_lab.bench.suites.fetch import fill
from rafka_lab.bench.tasks import Task
from rafka_lab.errors import LabError

# Often enough for a graph of a few seconds; py-spy stops a node for each sample, so not more often.
SAMPLES_PER_SECOND = 200
INSTALL_PY_SPY = "py-spy is not installed: pip install py-spy (it is part of the dev extra), then try again"
# py-spy needs a moment to begin; a client that is done before it is started again.
_MARGIN_SECONDS = 1.0
_TOPIC = "profiled"
_FETCHED_MESSAGES = 100_000


def _task(work: str, **more: Any) -> Task:
    return Task(work=work, bootstrap="", topic=_TOPIC, warm_up=0, **more)


# What the client does while the nodes are looked at.
WORKLOADS = {
    "produce-100B": _task("produce", message_bytes=100),
    "produce-1KB": _task("produce"),
    "produce-12-lz4": _task("produce", partitions=12, codec="lz4", payload="json"),
    "fetch-1KB": _task("fetch", messages=_FETCHED_MESSAGES),
    "requests-64": _task("requests", message_bytes=100, connections=64),
    "latency-1000": _task("produce", message_bytes=100, rate=1000, linger_ms=0),
}


def profile(names: list[str], out: Path, seconds: float, *, native: bool) -> Iterator[Path]:
    """Makes `out/<workload>-<node>.svg`, one after the other."""
    program = _py_spy()
    out.mkdir(parents=True, exist_ok=True)
    for name in names or WORKLOADS:
        with folder_for(OURS) as folder:
            side = OurSide(folder)
            side.start()
            try:
                yield from _profile(program, side, name, out, seconds, native)
            finally:
                side.close()


def _profile(program: str, side: Side, name: str, out: Path, seconds: float, native: bool) -> Iterator[Path]:
    task = replace(WORKLOADS[name], bootstrap=side.bootstrap, seconds=seconds + _MARGIN_SECONDS)
    if task.work == "fetch":
        fill(side, _TOPIC, task.partitions, task.messages)
    else:
        side.create_topic(_TOPIC, task.partitions)
    graphs = {node: out / f"{name}-{node}.svg" for node in side.pids}
    recorders = {node: _record(program, pid, graphs[node], seconds, native) for node, pid in side.pids.items()}
    while any(recorder.poll() is None for recorder in recorders.values()):
        client(task)
    for node, recorder in recorders.items():
        _, errors = recorder.communicate()
        if recorder.returncode:
            raise LabError(f"py-spy could not look at {node}: {errors.strip()[-400:]} (ptrace may need root)")
    yield from graphs.values()


def _record(program: str, pid: int, path: Path, seconds: float, native: bool) -> "subprocess.Popen[str]":
    command = [program, "record", "--pid", str(pid), "--output", str(path), "--duration", f"{seconds:.0f}"]
    command += ["--rate", str(SAMPLES_PER_SECOND), "--threads", *(["--native"] if native else [])]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _py_spy() -> str:
    """On PATH, or beside the Python that runs this."""
    beside = Path(sys.executable).with_name("py-spy")
    found = shutil.which("py-spy") or (str(beside) if beside.exists() else None)
    if found is None:
        raise LabError(INSTALL_PY_SPY)
    return found
