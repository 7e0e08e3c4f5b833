"""Figures, ratios, targets and pages: what is computed out of measurements, without measuring."""

import json
import zlib
from pathlib import Path

import pytest

from rafka_lab.bench import markdown
from rafka_lab.bench.payloads import pool
from rafka_lab.bench.report import Report, number, shown
from rafka_lab.bench.results import FORMAT, Machine, Run, Spread, load, merge, pairwise, ratios, save, spread
from rafka_lab.bench.targets import TARGETS, judge
from rafka_lab.errors import LabError

MACHINE = Machine(cpu="one", cores=2, memory_gb=8, system="Linux", disk="ext4", python="3.11", java="17")


def a_run(report: Report, command: str = "rafka-lab bench") -> Run:
    found = ratios(report.figures, "rafka", ["kafka"])
    return Run(
        format=FORMAT,
        command=command,
        started="2026-01-02T03:04:05+00:00",
        seconds=60,
        quick=True,
        machine=MACHINE,
        versions={"rafka": "rafka-lab 1", "kafka": "Apache Kafka 4"},
        figures=report.figures,
        ratios=found,
        checks=report.checks,
        targets=judge(found, "kafka"),
    )


def measured(ours: list[float], theirs: list[float]) -> Run:
    report = Report("rafka")
    report.begin("produce")
    report.compare("1 KB, 1 partition, acks=all", "throughput", "MB/s", {"rafka": ours, "kafka": theirs})
    report.costs(
        "1 KB, 1 partition, acks=all", "ms/MB", {"rafka": {"CPU gateway": [1.0]}, "kafka": {"CPU kafka": [2.0]}}
    )
    return a_run(report)


def test_a_spread_is_the_median_and_the_extremes() -> None:
    assert spread([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0, 3)
    assert spread([1.0, 2.0]).median == 1.5
    assert shown(spread([212.4, 198.0, 220.0])) == "212 (198-220)"
    assert shown(spread([0.25])) == "0.25"
    assert (number(1234.5), number(12.34), number(0.012)) == ("1,234", "12.3", "0.012")


def test_a_ratio_compares_rounds_that_followed_each_other() -> None:
    """The machine was half as fast in the second round: the medians would say nothing of that, the pairs do."""
    assert pairwise([100, 50, 100], [50, 25, 50]) == [2, 2, 2]
    (ratio,) = [found for found in measured([100, 50, 90], [50, 25, 30]).ratios if found.metric == "throughput"]
    assert ratio.spread == Spread(2.0, 2.0, 3.0, 3)


@pytest.mark.parametrize(("ours", "met"), [([99.0, 99.0], False), ([100.0, 101.0], True)])
def test_a_target_is_judged_by_the_ratio(ours: list[float], met: bool) -> None:
    (verdict,) = measured(ours, [100.0, 100.0]).targets
    assert (verdict.name, verdict.met) == ("produce: 1 KB, 1 partition, acks=all, throughput", met)


def test_lower_is_better_where_a_target_says_at_most() -> None:
    (memory,) = [target for target in TARGETS if target.suite == "memory"]
    report = Report("rafka")
    report.begin("memory")
    report.compare("at rest", "PSS", "MB", {"rafka": [100.0], "kafka": [400.0]})
    (verdict,) = a_run(report).targets
    assert (verdict.name, verdict.target, verdict.met) == (memory.name, "<= 0.4", True)


def test_the_json_has_all_of_it_and_comes_back_as_it_was(tmp_path: Path) -> None:
    run = measured([1.0, 2.0], [2.0, 4.0])
    save(run, tmp_path / "run.json")
    assert load(tmp_path / "run.json") == run
    plain = json.loads((tmp_path / "run.json").read_text())
    assert plain["format"] == FORMAT
    assert plain["machine"]["cores"] == 2
    first = plain["figures"][0]
    assert first["values"] == [1.0, 2.0]
    assert first["spread"] == {"median": 1.5, "low": 1.0, "high": 2.0, "runs": 2}
    assert plain["targets"][0]["met"] is False


def test_a_file_that_is_no_result_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"none\.json cannot be read"):
        load(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"figures": 3}')
    with pytest.raises(LabError, match="is not a result of `rafka-lab bench --json`"):
        load(tmp_path / "other.json")


def test_of_two_runs_the_later_one_counts_for_a_suite() -> None:
    report = Report("rafka")
    report.begin("wal")
    report.at_least("append", 0.5, 0.6, note="slow today")
    both = merge([measured([1.0], [1.0]), a_run(report), measured([3.0], [1.0])])
    assert [figure.values for figure in both.figures if figure.metric == "throughput"] == [[3.0], [1.0]]
    assert [check.name for check in both.checks] == ["append"]
    assert [verdict.met for verdict in both.targets] == [True]


def test_the_page_keeps_what_people_wrote_around_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "BENCHMARKS.md"
    markdown.write(measured([1.0], [2.0]), page)
    text = page.read_text().replace("Nothing is written here yet.", "Fetch: copies in the binding.")
    page.write_text(text.replace("# Benchmarks\n", "# Benchmarks\n\nRead this first.\n"))
    markdown.write(measured([4.0], [2.0]), page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\nRead this first.\n")
    assert text.endswith("Fetch: copies in the binding.\n")
    assert "| produce: 1 KB, 1 partition, acks=all, throughput | >= 1 | 2.00 | met |" in text
    assert "| 1 KB, 1 partition, acks=all: throughput (MB/s) | 4.00 | 2.00 | 2.00 | rafka: gateway 1.00; kafka" in text
    assert "**missed**" not in text
    assert "one, 2 cores, 8 GB" in text
    page.write_text("# Mine\n")
    with pytest.raises(LabError, match="between which the tables go"):
        markdown.write(measured([1.0], [2.0]), page)


def test_messages_have_the_size_asked_for_and_are_no_zeros() -> None:
    for kind in ("text", "json"):
        messages = pool(kind, 1000)
        assert {len(message) for message in messages} == {1000}
        assert len(set(messages)) == len(messages)
    squeezed = {
        kind: len(zlib.compress(b"".join(pool(kind, 1000)))) / len(b"".join(pool(kind, 1000)))
        for kind in ("text", "json")
    }
    assert squeezed["text"] > 0.5
    assert squeezed["json"] < 0.4
    with pytest.raises(LabError, match="no payload 'zeros'"):
        pool("zeros", 10)
