"""Experiments: a workload over a grid of parameters, repeated in a shuffled order, as a tidy DataFrame.

The order is shuffled so that a machine that gets slower meanwhile does not look like an effect of a parameter.
"""

import itertools
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rafka_lab.errors import ExperimentError
from rafka_lab.statistics import Interval, difference, interval

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

Workload = Callable[..., Mapping[str, float]]


@dataclass(frozen=True)
class Comparison:
    """Two variants in one metric. `change` is second - first, relative to first."""

    metric: str
    first: Mapping[str, Any]
    second: Mapping[str, Any]
    first_mean: float
    change: Interval

    @property
    def differs(self) -> bool:
        """Whether the 95 % interval of the change leaves out zero."""
        return not self.change.low <= 0 <= self.change.high

    def __str__(self) -> str:
        names = [", ".join(f"{name}={value}" for name, value in side.items()) for side in (self.first, self.second)]
        size = f"{self.change.mean:+.1%} (95 % between {self.change.low:+.1%} and {self.change.high:+.1%})"
        verdict = "" if self.differs else "; this many repeats show no difference"
        return f"{self.metric}: {names[1]} against {names[0]}: {size}{verdict}"


@dataclass(frozen=True)
class Results:
    """All runs. `runs` has a line a run: the parameters, `repeat`, `seconds` and the workload's metrics."""

    parameters: list[str]
    metrics: list[str]
    runs: "pd.DataFrame"
    constants: Mapping[str, Any] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        return str(self.summary()._repr_html_())

    def summary(self) -> "pd.DataFrame":
        """A line for each combination and metric: mean and 95 % confidence interval."""
        import pandas as pd

        lines = []
        for values, group in self._groups():
            for metric in self.metrics:
                found = interval(group[metric].tolist())
                lines.append(
                    {
                        **values,
                        "metric": metric,
                        "mean": found.mean,
                        "low": found.low,
                        "high": found.high,
                        "runs": len(group),
                    }
                )
        return pd.DataFrame(lines)

    def compare(self, metric: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> Comparison:
        """Two combinations of parameters, such as {"acks": "1"} and {"acks": "all"}."""
        if metric not in self.metrics:
            raise ExperimentError(f"there is no metric {metric!r}: use one of {', '.join(self.metrics)}")
        left, right = (self._values(metric, chosen) for chosen in (first, second))
        mean = sum(left) / len(left)
        if mean == 0:
            raise ExperimentError(f"{metric} of {dict(first)} is 0, and nothing can be compared with that")
        found = difference(left, right)
        return Comparison(metric, dict(first), dict(second), mean, Interval(*(part / abs(mean) for part in found)))

    def _values(self, metric: str, chosen: Mapping[str, Any]) -> list[float]:
        rows = self.runs
        for name, value in chosen.items():
            if name not in self.parameters:
                raise ExperimentError(f"{name!r} was not varied: the parameters are {', '.join(self.parameters)}")
            rows = rows[rows[name] == value]
        if rows.empty:
            raise ExperimentError(f"no run had {dict(chosen)}")
        values: list[float] = rows[metric].tolist()
        return values

    def _groups(self) -> list[tuple[dict[str, Any], "pd.DataFrame"]]:
        if not self.parameters:
            return [({}, self.runs)]
        found = self.runs.groupby(self.parameters, sort=True, dropna=False)
        return [(dict(zip(self.parameters, key, strict=True)), group) for key, group in found]


def run(
    workload: Workload, target: object, grid: Mapping[str, Any], *, repeats: int, seed: int, progress: bool
) -> Results:
    """Calls `workload(target, **parameters)`, which returns metrics, `repeats` times for each combination."""
    import pandas as pd

    if repeats < 1:
        raise ExperimentError(f"repeats is {repeats}; run it at least once")
    axes = {name: value for name, value in grid.items() if _is_axis(value)}
    constants = {name: value for name, value in grid.items() if name not in axes}
    if empty := [name for name, values in axes.items() if not values]:
        raise ExperimentError(f"{', '.join(empty)} has no values to try")
    combinations = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    plan = [(repeat, chosen) for repeat in range(repeats) for chosen in combinations]
    random.Random(seed).shuffle(plan)
    lines = []
    for repeat, chosen in _shown(plan, progress=progress):
        begun = time.monotonic()
        metrics = workload(target, **constants, **chosen)
        if not isinstance(metrics, Mapping):
            raise ExperimentError(f"a workload returns its metrics, such as {{'p50_ms': 1.5}}, not {metrics!r}")
        lines.append({**chosen, "repeat": repeat, "seconds": time.monotonic() - begun, **metrics})
    frame = pd.DataFrame(lines).sort_values([*axes, "repeat"], ignore_index=True)
    metrics_seen = [name for name in frame.columns if name not in {*axes, "repeat", "seconds"}]
    return Results(list(axes), metrics_seen, frame, constants)


def _is_axis(value: object) -> bool:
    return isinstance(value, Sequence | range) and not isinstance(value, str | bytes)


def _shown(plan: list[tuple[int, dict[str, Any]]], *, progress: bool) -> Any:
    if not progress:
        return plan
    from tqdm.auto import tqdm  # type: ignore[import-untyped]

    return tqdm(plan, desc="experiment", unit="run")
