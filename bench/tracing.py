"""What tracing costs: the same cluster with every request traced and with tracing off, in turns within one run.

Clients are processes of their own and speak raw sockets, so that as little as possible of the machine is theirs. Ratios
are what counts: the machine is whatever it is at this hour, and both kinds of lab run at the same time but are driven
one after the other.
"""

import asyncio
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

from bench.report import Report
from rafka_lab import Lab
from wal.records import NewRecord, build_batch

ROOT = Path(__file__).parents[1]
TOPIC = "bench"
ROUNDS = 7
SECONDS = 2.0
# Longer than a node keeps spans before it sends them.
DRAIN_LOOK = 1.0
LARGE_BATCH = 64 * 1024
LARGE_CONNECTIONS, LARGE_IN_FLIGHT = 4, 5
SMALL_CONNECTIONS, SMALL_IN_FLIGHT = 64, 1
SMALL_VALUE = 100
LARGE_SHARE, SMALL_SHARE = 0.9, 0.6
_PRODUCE, _VERSION, _ACKS_ALL, _TIMEOUT_MS = 0, 7, -1, 30_000
_LENGTH = struct.Struct(">i")
# Of an answer with one topic and one partition: correlation id, two counts, the name, index, then the error code.
_ERROR_AT = 4 + 4 + 2 + len(TOPIC) + 4 + 4


def produce_request(batch: bytes) -> bytes:
    """Produce 7 with one batch for partition 0, with its length in front."""
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    header = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1)
    body = struct.pack(">hhii", -1, _ACKS_ALL, _TIMEOUT_MS, 1) + name + struct.pack(">iii", 1, 0, len(batch)) + batch
    return _LENGTH.pack(len(header) + len(body)) + header + body


async def drive(bootstrap: str, batch_bytes: int, connections: int, in_flight: int, seconds: float) -> int:
    """Answered requests, all of them successes; each connection keeps some in flight."""
    value = os.urandom(SMALL_VALUE if batch_bytes == 0 else 1000)
    count = max(1, batch_bytes // (len(value) + 10))
    request = produce_request(build_batch([NewRecord(None, value)] * count))
    host, _, port = bootstrap.rpartition(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]
    deadline = time.perf_counter() + seconds

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        answered = 0
        for _ in range(in_flight):
            writer.write(request)
        while time.perf_counter() < deadline:
            (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            answer = await reader.readexactly(size)
            (error,) = struct.unpack_from(">h", answer, _ERROR_AT)
            if error:
                raise SystemExit(f"a produce was answered with error {error}")
            answered += 1
            writer.write(request)
        return answered

    answered = sum(await asyncio.gather(*(one(*pair) for pair in opened)))
    for _, writer in opened:
        writer.close()
    return answered


def stats(lab: Lab) -> dict[str, int]:
    with urlopen(f"{lab.traces_url}/api/stats", timeout=30) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found


def drain(lab: Lab) -> None:
    """Waits until the collector has all spans: what it does later must not be on the other lab's account."""
    if not lab.traces_url:
        return
    received, before = stats(lab)["received"], -1
    while received != before:
        time.sleep(DRAIN_LOOK)
        received, before = stats(lab)["received"], received


def rate(lab: Lab, batch_bytes: int, connections: int, in_flight: int) -> float:
    """Requests a second of one turn."""
    arguments = [lab.bootstrap, str(batch_bytes), str(connections), str(in_flight), str(SECONDS)]
    command = [sys.executable, "-m", "bench.tracing", *arguments]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    drain(lab)
    return float(json.loads(said)) / SECONDS


def turns(labs: tuple[Lab, Lab], batch_bytes: int, connections: int, in_flight: int) -> Iterator[tuple[float, float]]:
    """(traced, not traced) requests a second: A B, then B A, so that a drift of the machine cancels out."""
    traced, plain = labs
    for number in range(ROUNDS):
        order = (traced, plain) if number % 2 == 0 else (plain, traced)
        rates = {lab: rate(lab, batch_bytes, connections, in_flight) for lab in order}
        yield rates[traced], rates[plain]


def compare(
    report: Report, labs: tuple[Lab, Lab], name: str, target: float, batch_bytes: int, connections: int, in_flight: int
) -> None:
    for lab in labs:
        rate(lab, batch_bytes, connections, in_flight)
    pairs = list(turns(labs, batch_bytes, connections, in_flight))
    traced, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(one / other for one, other in pairs)
    note = (
        f"median of {ROUNDS}; {traced:,.0f} against {plain:,.0f} requests/s; single ratios {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f}; load {os.getloadavg()[0]:.1f}"
    )
    report.at_least(f"{name}, traced against not traced", statistics.median(ratios), target, "x", note)


def run(report: Report) -> None:
    with ExitStack() as stack:
        labs = (stack.enter_context(Lab()), stack.enter_context(Lab(trace_ratio=0)))
        for lab in labs:
            lab.create_topic(TOPIC, config={"retention.bytes": str(256 << 20)})
        compare(report, labs, "produce, 64 KB batches", LARGE_SHARE, LARGE_BATCH, LARGE_CONNECTIONS, LARGE_IN_FLIGHT)
        compare(
            report, labs, "produce, 1 record a request, 64 connections", SMALL_SHARE, 0, SMALL_CONNECTIONS,
            SMALL_IN_FLIGHT,
        )  # fmt: skip
        counted = stats(labs[0])
        report.figure("spans kept", counted["received"], "", f"{counted['dropped']:,} dropped by the nodes' queues")


if __name__ == "__main__":
    bootstrap, batch_bytes, connections, in_flight, seconds = sys.argv[1:]
    answered = asyncio.run(drive(bootstrap, int(batch_bytes), int(connections), int(in_flight), float(seconds)))
    sys.stdout.write(json.dumps(answered))
