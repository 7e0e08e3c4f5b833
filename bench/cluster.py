"""A whole cluster, driven by librdkafka: produce and fetch through gateway, mesh and log; the time to the first ack.

librdkafka's in-memory mock cluster gets the same load from the same client in the same run, turn by turn: the ratio of
the two is compared with DESIGN.md section 10, since absolute figures depend on the machine and on what else it does.
What a node itself costs is its CPU time for a megabyte, which a busy machine does not change much.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
from confluent_kafka import Producer

from bench.cluster_client import Outcome, Task
from bench.report import Report
from rafka_lab import Lab

ROOT = Path(__file__).parents[1]
ROUNDS = 2
TIMEOUT = 120
MEGABYTE = 1_000_000
# Message bytes, messages a round, and cluster over mock as measured for DESIGN.md section 10.
LOADS = ((100, 600_000, 1.1), (1_000, 100_000, 0.28), (10_000, 15_000, 0.09))
# The part of that relation that counts as reached.
WITHIN = 0.8
FETCHED_MESSAGES = 100_000
FETCHED_BYTES = 1_000
# Three starts: the first one also reads the programs from disk.
STARTS = 3
FIRST_ACK_SECONDS = 1.5


def run(report: Report) -> None:
    _first_ack(report)
    with Lab(trace_ratio=0) as lab:
        for message_bytes, messages, relation in LOADS:
            _produce(report, lab, message_bytes, messages, relation)
        _fetch(report, lab)


def _first_ack(report: Report) -> None:
    """From the call of `Lab()` to the acknowledgement of a record, as a person in a notebook meets it."""
    times = [_start_and_produce() for _ in range(STARTS)]
    report.at_most("first record acknowledged after Lab() is called", min(times), FIRST_ACK_SECONDS, "s", _all(times))


def _start_and_produce() -> float:
    failed: list[str] = []
    started = time.perf_counter()
    with Lab() as lab:
        producer = Producer({"bootstrap.servers": lab.bootstrap, "acks": "all", "linger.ms": 0})
        producer.produce("first", b"x", on_delivery=lambda error, _: failed.append(str(error)) if error else None)
        unsent = producer.flush(TIMEOUT)
        seconds = time.perf_counter() - started
        producer.close()
    if unsent or failed:
        raise RuntimeError(f"the first record was not acknowledged: {failed or 'no answer in time'}")
    return seconds


def _produce(report: Report, lab: Lab, message_bytes: int, messages: int, relation: float) -> None:
    topic = f"produce-{message_bytes}"
    ours, mock, cpu = [], [], []
    for _ in range(ROUNDS):
        before = _cpu(lab)
        ours.append(_client(Task("produce", lab.bootstrap, topic, message_bytes, messages)))
        cpu.append({name: seconds - before[name] for name, seconds in _cpu(lab).items()})
        mock.append(_client(Task("produce", "", topic, message_bytes, messages)))
    name = f"produce {message_bytes} B, acks=all"
    _rates(report, name, ours, message_bytes)
    _rates(report, f"{name}: librdkafka's mock", mock, message_bytes)
    _node_cpu(report, name, cpu, message_bytes * messages / MEGABYTE)
    ratio = _best(ours) / _best(mock)
    reached = ratio / relation
    verdict = "within" if reached >= WITHIN else "below"
    report.figure(f"{name}: cluster over mock", ratio, "x", f"DESIGN.md: {relation:g} x")
    report.figure(f"{name}: part of that relation", reached, "x", f"{verdict} the {WITHIN:g} x that it should keep")


def _fetch(report: Report, lab: Lab) -> None:
    topic = f"fetch-{FETCHED_BYTES}"
    _client(Task("produce", lab.bootstrap, topic, FETCHED_BYTES, FETCHED_MESSAGES))
    outcomes, cpu = [], []
    for _ in range(ROUNDS):
        before = _cpu(lab)
        outcomes.append(_client(Task("fetch", lab.bootstrap, topic, FETCHED_BYTES, FETCHED_MESSAGES)))
        cpu.append({name: seconds - before[name] for name, seconds in _cpu(lab).items()})
    name = f"fetch {FETCHED_BYTES} B"
    _rates(report, name, outcomes, FETCHED_BYTES)
    _node_cpu(report, name, cpu, FETCHED_BYTES * FETCHED_MESSAGES / MEGABYTE)


def _rates(report: Report, name: str, outcomes: list[Outcome], message_bytes: int) -> None:
    best = _best(outcomes)
    rates = [outcome.messages * message_bytes / outcome.seconds / MEGABYTE for outcome in outcomes]
    report.figure(name, best * message_bytes / MEGABYTE, "MB/s", f"{best:,.0f} msg/s; rounds {_all(rates)}")


def _node_cpu(report: Report, name: str, rounds: list[dict[str, float]], megabytes: float) -> None:
    for node in rounds[0]:
        each = [seconds[node] / megabytes * 1000 for seconds in rounds]
        report.figure(f"{name}: CPU of {node}", statistics.median(each), "ms/MB", _all(each))


def _best(outcomes: list[Outcome]) -> float:
    """Messages a second of the round that was disturbed least."""
    return max(outcome.messages / outcome.seconds for outcome in outcomes)


def _all(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def _cpu(lab: Lab) -> dict[str, float]:
    """CPU seconds of each node so far."""
    times = {name: psutil.Process(node.pid).cpu_times() for name, node in lab.nodes.items()}
    return {name: used.user + used.system for name, used in times.items()}


def _client(task: Task) -> Outcome:
    command = [sys.executable, "-m", "bench.cluster_client", json.dumps(msgspec.to_builtins(task))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * TIMEOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"the client failed at {task}: {done.stderr.strip()}")
    return msgspec.json.decode(done.stdout, type=Outcome)
