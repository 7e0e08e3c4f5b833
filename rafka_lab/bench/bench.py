"""One run of the benchmarks: which sides, how long, how often; client processes; rounds in turns (A B, then B A)."""

import contextlib
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from rafka_lab.bench.report import Report
from rafka_lab.bench.sides import KAFKA, OURS, ForeignSide, KafkaSide, MockSide, OurSide, Side, folder_for
from rafka_lab.bench.tasks import Outcome, Task
from rafka_lab.errors import LabError
from rafka_lab.node import process_environment

_CLIENT_SECONDS = 300.0
_MEGABYTE = 1_000_000
# A JVM compiles what it finds hot, so everybody gets some load before anything is measured.
_WARM_UP_CONNECTIONS = 8
# Figures with this in front are CPU time of the process that follows.
CPU = "CPU "
AnySide = TypeVar("AnySide", bound=Side)
Measure = Callable[[Side], Mapping[str, float]]


@dataclass(frozen=True)
class Pace:
    """How long a round is and how often it is repeated."""

    repeats: int
    restarts: int  # repeats of what starts all processes anew
    discards: int  # rounds that are thrown away before those that count
    seconds: float
    warm_up: float  # of a client, before its window
    first_load: float  # of a side, before its first workload


QUICK = Pace(repeats=3, restarts=2, discards=1, seconds=1, warm_up=0.3, first_load=3)
FULL = Pace(repeats=3, restarts=3, discards=1, seconds=2, warm_up=0.5, first_load=20)


class ClientError(LabError):
    """A client process failed; the message has its own words."""


class Bench:
    """What a suite is given. `peer` is `kafka`, an address, or nothing; `pace` overrides what `quick` chooses."""

    def __init__(self, report: Report, *, quick: bool, peer: str | None = None, pace: Pace | None = None) -> None:
        self.report = report
        self.quick = quick
        self.peer = peer
        self.pace = pace or (QUICK if quick else FULL)
        self.versions: dict[str, str] = {}
        self._prefix = f"bench-{uuid.uuid4().hex[:8]}"

    def topic(self, name: str) -> str:
        """A topic's name that nobody else has: the peer may be a cluster that people use."""
        return f"{self._prefix}-{name}"

    @contextlib.contextmanager
    def sides(self, *, mock: bool = False, start: bool = True, warm: bool = True) -> Iterator[list[Side]]:
        """Our cluster, the peer if there is one, and the mock if asked for: started and warm unless told otherwise."""
        with contextlib.ExitStack() as stack:
            sides: list[Side] = [OurSide(stack.enter_context(folder_for(OURS)))]
            stack.callback(sides[0].close)
            if self.peer is not None:
                sides.append(self._peer(stack))
                stack.callback(sides[1].close)
            if mock:
                sides.append(MockSide())
                stack.callback(sides[-1].close)
            if start:
                for side in sides:
                    if side.restarts:
                        side.start()
            if start and warm:
                self._warm_up(sides)
            yield sides
            self.versions |= {side.name: side.version for side in sides}

    def _peer(self, stack: contextlib.ExitStack) -> Side:
        assert self.peer is not None
        return KafkaSide(stack.enter_context(folder_for(KAFKA))) if self.peer == KAFKA else ForeignSide(self.peer)

    def _warm_up(self, sides: Sequence[Side]) -> None:
        topic = self.topic("warm-up")
        for side in sides:
            side.create_topic(topic)
            half = self.pace.first_load / 2
            load = Task(work="produce", bootstrap=side.bootstrap, topic=topic, acks="1", seconds=half, warm_up=0)
            client(load)
            client(replace(load, work="requests", connections=_WARM_UP_CONNECTIONS))
            side.delete_topic(topic)

    def rounds(
        self, sides: Sequence[Side], measure: Measure, *, repeats: int | None = None, discards: int | None = None
    ) -> dict[str, list[dict[str, float]]]:
        """What `measure` gave for each side, by its name. They take turns: A B, then B A."""
        found: dict[str, list[dict[str, float]]] = {side.name: [] for side in sides}
        for _ in range(self.pace.discards if discards is None else discards):
            for side in sides:
                measure(side)
        for turn in range(repeats or self.pace.repeats):
            for side in in_turn(sides, turn):
                found[side.name].append(dict(measure(side)))
        return found

    def compare(
        self, workload: str, found: Mapping[str, Sequence[Mapping[str, float]]], metrics: Mapping[str, str]
    ) -> None:
        """Puts rounds into the report: `metrics` are the names and units, and CPU time comes after them."""
        for metric, unit in metrics.items():
            values = {side: [one[metric] for one in rounds] for side, rounds in found.items()}
            self.report.compare(workload, metric, unit, values)
        names = {side: [name for name in rounds[0] if name.startswith(CPU)] for side, rounds in found.items() if rounds}
        costs = {side: {name: [one[name] for one in found[side]] for name in names[side]} for side in names}
        if any(costs.values()):
            self.report.costs(workload, "us/request" if "requests" in metrics else "ms/MB", costs)


def in_turn(sides: Sequence[AnySide], turn: int) -> list[AnySide]:
    return list(sides if turn % 2 == 0 else reversed(sides))


def client(task: Task) -> Outcome:
    """Runs a client process to its end."""
    return finish(start_client(task))


def start_client(task: Task) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "rafka_lab.bench.client", msgspec.json.encode(task).decode()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=process_environment(),
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> Outcome:
    try:
        out, errors = process.communicate(timeout=_CLIENT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ClientError(f"a client was not done after {_CLIENT_SECONDS:g} s: {process.args!r}") from None
    finally:
        if process.poll() is None:  # too late, or we were interrupted
            process.kill()
            process.wait()
    if process.returncode:
        raise ClientError(f"a client failed: {errors.strip()[-600:]} ({process.args!r})")
    return msgspec.json.decode(out.splitlines()[-1], type=Outcome)


def cpu_used(side: Side, work: Callable[[], Outcome]) -> tuple[Outcome, dict[str, float]]:
    """The work's outcome, and the CPU seconds that each of the side's processes spent on it."""
    before = side.cpu()
    outcome = work()
    after = side.cpu()
    return outcome, {f"{CPU}{name}": after[name] - before[name] for name in before}


def throughput(side: Side, task: Task) -> dict[str, float]:
    """MB/s of one client, and the CPU milliseconds that a megabyte cost each process."""
    outcome, used = cpu_used(side, lambda: client(task))
    megabytes = outcome.total * task.message_bytes / _MEGABYTE
    used[f"{CPU}client"] = outcome.client_cpu
    figures = {name: seconds * 1000 / megabytes for name, seconds in used.items()}
    return {"throughput": outcome.messages / outcome.seconds * task.message_bytes / _MEGABYTE, **figures}


class Peak:
    """The most memory that a side had while the block ran, looked at ten times a second."""

    def __init__(self, side: Side, interval: float = 0.1) -> None:
        self._side = side
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.megabytes = 0.0

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(self._interval):
            self.megabytes = max(self.megabytes, self._side.memory())


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
