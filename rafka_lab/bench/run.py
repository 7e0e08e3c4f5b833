"""A run of the benchmarks from its suites to its result."""

import importlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from rafka_lab.bench.bench import Bench, Pace
from rafka_lab.bench.machine import this_machine
from rafka_lab.bench.report import Report
from rafka_lab.bench.results import FORMAT, Run, ratios
from rafka_lab.bench.sides import KAFKA, OURS
from rafka_lab.bench.suites import SUITES
from rafka_lab.bench.targets import judge
from rafka_lab.errors import LabError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


def run_suites(
    suites: Sequence[str] = (),
    *,
    quick: bool = False,
    peer: str | None = None,
    pace: Pace | None = None,
    command: str = "",
    out: TextIO | None = None,
    after_suite: Callable[[Run], None] | None = None,
) -> Run:
    """Runs the named suites, or all. `peer` is `kafka` (started here), the address of a cluster, or nothing.

    `after_suite` gets what is known so far: a suite that fails after an hour must not take the others with it.
    """
    unknown = sorted(set(suites) - set(SUITES))
    if unknown:
        raise LabError(f"no suite {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    report = Report(OURS, out)
    bench = Bench(report, quick=quick, peer=peer, pace=pace)
    started, clock = datetime.now(UTC), time.monotonic()
    for name in suites or SUITES:
        report.begin(name)
        importlib.import_module(f"rafka_lab.bench.suites.{name}").run(bench)
        result = _result(bench, command, started, time.monotonic() - clock)
        if after_suite is not None:
            after_suite(result)
    return result


def _result(bench: Bench, command: str, started: datetime, seconds: float) -> Run:
    report = bench.report
    found = ratios(report.figures, OURS, [side for side in bench.versions if side != OURS])
    return Run(
        format=FORMAT,
        command=command,
        started=started.isoformat(timespec="seconds"),
        seconds=seconds,
        quick=bench.quick,
        machine=this_machine(),
        versions=bench.versions,
        figures=report.figures,
        ratios=found,
        checks=report.checks,
        targets=judge(found, bench.peer or KAFKA),
    )


def frame(of: Run) -> "pd.DataFrame":
    """A line a figure: suite, workload, side, metric, unit, median, low, high, runs."""
    import msgspec
    import pandas as pd

    lines = [msgspec.to_builtins(figure) for figure in of.figures]
    flat = pd.DataFrame([line | line["spread"] for line in lines])
    return flat.drop(columns=["spread", "values"], errors="ignore")
