"""Very small runs with real clients against a real cluster."""

import os
from pathlib import Path

import pytest

from rafka_lab import Lab
from rafka_lab.bench.bench import Bench, ClientError, Pace, client
from rafka_lab.bench.profile import profile
from rafka_lab.bench.report import Report
from rafka_lab.bench.run import frame, run_suites
from rafka_lab.bench.suites import fetch, growth, latency, memory, produce, recovery
from rafka_lab.bench.tasks import Task
from rafka_lab.errors import LabError

TINY = Pace(repeats=2, restarts=1, discards=0, seconds=0.2, warm_up=0.1, first_load=0.2)


def test_produce_fetch_and_latency_are_measured_with_cpu_of_every_process() -> None:
    report = Report("rafka")
    bench = Bench(report, quick=True, pace=TINY)
    with bench.sides(mock=True) as sides:
        report.begin("produce")
        produce.measure(bench, sides, produce.Load(1_000, 1, "all", "none"), "small")
        ours = sides[:1]
        report.begin("fetch")
        fetch.measure(bench, ours, 2, 3_000)
        report.begin("latency")
        latency.measure(bench, ours, 200, "1", 0.5)
    found = {(figure.suite, figure.workload, figure.side, figure.metric): figure for figure in report.figures}
    assert len({bench.versions[side] for side in ("rafka", "mock")}) == 2
    for side, processes in (("rafka", ("gateway", "broker-0", "client")), ("mock", ("mock", "client"))):
        key = ("produce", "1 KB, 1 partition, acks=all", side)
        assert found[*key, "throughput"].spread.runs == 2
        assert {metric for *place, metric in found if tuple(place) == key} == {
            "throughput",
            *(f"CPU {process}" for process in processes),
        }
    assert found["fetch", "1 KB, 2 partitions, cold", "rafka", "throughput"].spread.low > 0
    assert found["fetch", "1 KB, 2 partitions, cached", "rafka", "throughput"].spread.low > 0
    p50, p99 = (found["latency", "200 msg/s, acks=1", "rafka", name].spread.median for name in ("p50", "p99"))
    assert 0 < p50 <= p99


def test_a_whole_suite_beside_a_cluster_that_runs_already_becomes_a_result_and_a_frame(shared_lab: Lab) -> None:
    peer = shared_lab.bootstrap
    before = set(shared_lab.topics()["topic"])
    with Path(os.devnull).open("w") as nowhere:
        result = run_suites(["requests"], quick=True, peer=peer, pace=TINY, command="rafka-lab bench", out=nowhere)
    assert set(shared_lab.topics()["topic"]) == before
    assert (result.quick, result.command) == (True, "rafka-lab bench")
    assert [(verdict.name, verdict.peer) for verdict in result.targets] == [
        ("requests: 64 connections, acks=1, requests", peer),
        ("requests: 64 connections, acks=all, requests", peer),
    ]
    lines = frame(result)
    columns = ["suite", "workload", "side", "metric", "unit", "median", "low", "high", "runs"]
    assert list(lines.columns) == columns
    chosen = lines[(lines["metric"] == "requests") & (lines["workload"] == "64 connections, acks=1")]
    assert sorted(chosen["side"]) == sorted(["mock", "rafka", peer])
    # The client must not be what is measured: it can do more than the cluster.
    bounds = [ratio.spread.median for ratio in result.ratios if (ratio.peer, ratio.metric) == ("mock", "requests")]
    assert len(bounds) == 2
    assert max(bounds) < 1


def test_starts_restarts_memory_and_growth_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "QUICK_MESSAGES", 2_000)
    monkeypatch.setattr(memory, "REST_SECONDS", 0.1)
    monkeypatch.setattr(growth, "QUICK_PARTITIONS", (3,))
    monkeypatch.setattr(growth, "QUICK_CONNECTIONS", (8,))
    monkeypatch.setattr(growth, "QUICK_LOG", (0.005, 0.01))
    monkeypatch.setattr(growth, "_HEAD_MESSAGES", 2_000)
    monkeypatch.setattr(growth, "_REST_SECONDS", 0.1)
    with Path(os.devnull).open("w") as nowhere:
        result = run_suites(["startup", "recovery", "memory", "growth"], quick=True, pace=TINY, out=nowhere)
    found = {(figure.suite, figure.workload, figure.metric): figure.spread for figure in result.figures}
    assert found["startup", "empty data folder", "to first ack"].runs == 1
    assert found["recovery", "0.002 GB, after clean stop", "to first ack"].low > 0
    assert found["recovery", "0.002 GB, after kill -9", "to first ack"].low > 0
    assert found["memory", "at most under load", "PSS"].median > found["memory", "at rest", "PSS"].median > 0
    for workload, metric in (
        ("3 partitions", "throughput"),
        ("8 connections", "requests"),
        ("8 connections", "PSS"),
        ("log of 0.01 GB", "to first ack"),
        ("log of 0.01 GB", "cold read"),
    ):
        assert found["growth", workload, metric].low > 0


def test_a_client_that_fails_says_why() -> None:
    bench = Bench(Report("rafka"), quick=True, pace=TINY)
    with bench.sides(warm=False) as (ours,):
        task = Task(work="requests", bootstrap=ours.bootstrap, topic="nowhere", seconds=0.1)
        with pytest.raises(ClientError, match="answered with Kafka's error 3"):
            client(task)


def test_an_unknown_suite_or_peer_is_refused_before_anything_runs() -> None:
    with pytest.raises(LabError, match="no suite nothing; there are: produce, fetch"):
        run_suites(["nothing"])
    with pytest.raises(LabError, match=r"nothing answers at 127\.0\.0\.1:1"):
        run_suites(["produce"], peer="127.0.0.1:1")


def test_a_profile_is_a_flame_graph_of_each_node(tmp_path: Path) -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() != 0 and (not scope.exists() or scope.read_text().strip() != "0"):
        pytest.skip("py-spy may not look at other processes here: run as root, or set kernel.yama.ptrace_scope=0")
    made = list(profile(["requests-64"], tmp_path, 1, native=False))
    assert sorted(path.name for path in made) == ["requests-64-broker-0.svg", "requests-64-gateway.svg"]
    for path in made:
        assert "<svg" in path.read_text()
        assert f"nodes/{'broker' if 'broker' in path.name else 'gateway'}" in path.read_text()
