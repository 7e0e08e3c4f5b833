"""Collects what the suites find, and says it as it comes: a line a figure."""

import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from rafka_lab.bench.results import Check, Figure, Spread, pairwise, spread

_NAME_WIDTH = 58


class Report:
    """Figures of sides that are compared, and checks of our own parts. `suite` names the one that runs."""

    def __init__(self, ours: str, out: TextIO | None = None) -> None:
        self.suite = ""
        self.figures: list[Figure] = []
        self.checks: list[Check] = []
        self._ours = ours
        self._out = out or sys.stdout

    @property
    def missed(self) -> list[str]:
        return [f"{check.suite}: {check.name}" for check in self.checks if check.met is False]

    def begin(self, suite: str) -> None:
        self.suite = suite
        self._say(f"\n== {suite}")

    def compare(self, workload: str, metric: str, unit: str, values: Mapping[str, Sequence[float]]) -> None:
        """The same metric of some sides, `values` by the side's name in the order of the rounds."""
        parts = []
        for side, found in values.items():
            if found:
                parts.append(f"{side} {shown(self._add(workload, side, metric, unit, found).spread)}")
        line = f"{f'{workload}: {metric}':<{_NAME_WIDTH}} {'  '.join(parts)} {unit}"
        for side, found in values.items():
            if side != self._ours and found and values.get(self._ours):
                line += f"  x{spread(pairwise(values[self._ours], found)).median:.2f} of {side}"
        self._say(line)

    def costs(self, workload: str, unit: str, values: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
        """CPU time by side and process, in one line."""
        parts = []
        for side, processes in values.items():
            figures = [self._add(workload, side, name, unit, found) for name, found in processes.items()]
            each = (f"{figure.metric.removeprefix('CPU ')} {number(figure.spread.median)}" for figure in figures)
            parts.append(f"{side}: {', '.join(each)}")
        self._say(f"{'    CPU':<{_NAME_WIDTH}} {'; '.join(parts)} {unit}")

    def _add(self, workload: str, side: str, metric: str, unit: str, values: Sequence[float]) -> Figure:
        figure = Figure(
            suite=self.suite,
            workload=workload,
            side=side,
            metric=metric,
            unit=unit,
            values=[float(value) for value in values],
            spread=spread(values),
        )
        self.figures.append(figure)
        return figure

    def figure(self, name: str, value: float, unit: str = "", note: str = "") -> None:
        """A figure without a target."""
        self._check(name, value, unit, "", None, note)

    def at_least(self, name: str, value: float, target: float, unit: str = "x", note: str = "") -> None:
        """A figure that must not be below its target."""
        self._check(name, value, unit, f">= {target:g} {unit}", value >= target, note)

    def at_most(self, name: str, value: float, target: float, unit: str = "x", note: str = "") -> None:
        """A figure that must not be above its target."""
        self._check(name, value, unit, f"<= {target:g} {unit}", value <= target, note)

    def note(self, text: str) -> None:
        """What a reader of the output should know."""
        self._say(f"({text})")

    def _check(self, name: str, value: float, unit: str, target: str, met: bool | None, note: str) -> None:
        self.checks.append(
            Check(suite=self.suite, name=name, value=float(value), unit=unit, target=target, met=met, note=note)
        )
        verdict = "" if met is None else f"target {target}: {'met' if met else 'MISSED'}"
        line = f"{name:<{_NAME_WIDTH}} {value:>12,.2f} {unit:<6} {verdict}"
        self._say(f"{line.rstrip()}{f'  ({note})' if note else ''}")

    def _say(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()


def shown(found: Spread) -> str:
    """`212 (198-220)`, with as many digits as the size is worth."""
    if found.runs == 1:
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)}-{number(found.high)})"


def number(value: float) -> str:
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:,.{digits}f}"
