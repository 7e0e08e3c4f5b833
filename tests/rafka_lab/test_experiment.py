"""Experiments: the grid, the order, intervals that are right, comparisons that do not see what is not there."""

import math
import random

import pytest

from rafka_lab import Lab, plots
from rafka_lab.errors import ExperimentError, LabError
from rafka_lab.experiment import run
from rafka_lab.statistics import difference, interval
from rafka_lab.workloads import fetch_load, produce_load


def test_the_interval_of_known_values() -> None:
    found = interval([10.0, 12.0, 14.0])
    assert found.mean == 12
    assert found.high - found.mean == pytest.approx(4.303 * 2 / math.sqrt(3), rel=1e-3)
    assert interval([5.0]) == (5.0, -math.inf, math.inf)


def test_intervals_hold_the_true_mean_as_often_as_they_say() -> None:
    source = random.Random(7)
    inside = sum(
        found.low <= 100 <= found.high
        for found in (interval([source.gauss(100, 15) for _ in range(5)]) for _ in range(2000))
    )
    assert 0.93 <= inside / 2000 <= 0.97


def test_the_difference_of_two_groups_by_welch() -> None:
    found = difference([20.0, 22.0, 19.0, 23.0], [28.0, 30.0, 33.0, 31.0])
    assert found.mean == pytest.approx(9.5)
    # By hand: variances 10/3 and 13/3, so 23/12 for the difference; 5.9 degrees of freedom, rounded down to 5.
    spread = 2.571 * math.sqrt(23 / 12)
    assert (found.low, found.high) == (pytest.approx(9.5 - spread), pytest.approx(9.5 + spread))
    assert difference([1.0, 1.0], [2.0, 2.0]) == (1.0, 1.0, 1.0)


def test_every_combination_runs_as_often_as_asked_in_a_shuffled_order() -> None:
    seen: list[tuple[int, str]] = []

    def workload(target: object, *, a: int, b: str, fixed: str) -> dict[str, float]:
        assert (target, fixed) == ("lab", "f")
        seen.append((a, b))
        return {"metric": a * 10.0}

    results = run(workload, "lab", {"a": [1, 2, 3], "b": ["x", "y"], "fixed": "f"}, repeats=4, seed=3, progress=False)
    assert len(seen) == len(results.runs) == 24
    assert sorted(set(seen)) == [(a, b) for a in (1, 2, 3) for b in "xy"]
    assert seen != sorted(seen)
    summary = results.summary()
    assert len(summary) == 6
    assert summary[summary["a"] == 2]["mean"].tolist() == [20.0, 20.0]


def test_a_comparison_sees_a_difference_and_none_where_there_is_none() -> None:
    source = random.Random(1)
    results = run(
        lambda _, kind: {"ms": source.gauss({"a": 10, "b": 10, "slow": 20}[kind], 0.5)},
        None,
        {"kind": ["a", "b", "slow"]},
        repeats=8,
        seed=0,
        progress=False,
    )
    slower = results.compare("ms", {"kind": "a"}, {"kind": "slow"})
    assert slower.differs
    assert slower.change.mean == pytest.approx(1.0, abs=0.15)
    assert "kind=slow against kind=a: +" in str(slower)
    same = results.compare("ms", {"kind": "a"}, {"kind": "b"})
    assert not same.differs
    assert "no difference" in str(same)


def test_what_cannot_be_compared_is_said() -> None:
    results = run(lambda _, a: {"ms": float(a)}, None, {"a": [0, 1]}, repeats=2, seed=0, progress=False)
    with pytest.raises(ExperimentError, match="no metric 'mb'"):
        results.compare("mb", {"a": 0}, {"a": 1})
    with pytest.raises(ExperimentError, match="'b' was not varied"):
        results.compare("ms", {"b": 0}, {"a": 1})
    with pytest.raises(ExperimentError, match="no run had"):
        results.compare("ms", {"a": 7}, {"a": 1})
    with pytest.raises(ExperimentError, match="is 0"):
        results.compare("ms", {"a": 0}, {"a": 1})
    with pytest.raises(ExperimentError, match="repeats is 0"):
        run(lambda _: {}, None, {}, repeats=0, seed=0, progress=False)
    with pytest.raises(ExperimentError, match="a has no values"):
        run(lambda _, a: {}, None, {"a": []}, repeats=1, seed=0, progress=False)
    with pytest.raises(ExperimentError, match="a workload returns its metrics"):
        run(lambda _: 5, None, {}, repeats=1, seed=0, progress=False)  # type: ignore[arg-type, return-value]


def test_a_lab_is_measured_and_drawn(shared_lab: Lab, topic: str) -> None:
    results = shared_lab.experiment(produce_load, linger_ms=[0, 5], topic=topic, records=200, repeats=2, progress=False)
    assert (results.runs["records_per_s"] > 0).all()
    assert (results.runs["p99_ms"] >= results.runs["p50_ms"]).all()
    assert fetch_load(shared_lab, topic=topic)["records"] == 800
    chart = plots.experiment(results, "p50_ms", x="linger_ms").to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["circle", "point", "rule"]
    with pytest.raises(LabError, match="no metric"):
        plots.experiment(results, "nothing", x="linger_ms")


def test_a_rate_is_kept(shared_lab: Lab, topic: str) -> None:
    found = produce_load(shared_lab, topic=topic, records=100, rate=400)
    assert found["records_per_s"] <= 440


def test_charts_hold_what_they_are_about(shared_lab: Lab, topic: str) -> None:
    trace = shared_lab.traces.of(shared_lab.produce(topic, "x", linger_ms=0).iloc[0])
    waterfall = plots.waterfall(trace).to_dict()
    [rows] = waterfall["datasets"].values()
    assert [row["label"].strip() for row in rows] == trace.chain()
    assert all(row["end_ms"] >= row["offset_ms"] for row in rows)
    hops = plots.hops(shared_lab.traces.frame([trace])).to_dict()
    [points] = hops["datasets"].values()
    assert len(points) == len(trace)
    with pytest.raises(LabError, match="no fault was made yet"):
        plots.fault_timeline(shared_lab.faults.timeline())
