"""What a run of the benchmarks found: figures with their spread, ratios, checks and targets. Plain data, for JSON."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rafka_lab.errors import LabError

# Raised when a field changes its meaning; readers of old files are told so.
FORMAT = 1


class Spread(msgspec.Struct, frozen=True):
    """Repeated measurements: the median and the extremes. A handful of values has no percentiles."""

    median: float
    low: float
    high: float
    runs: int


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one side in one workload; `values` are the repeats in the order they were made."""

    suite: str
    workload: str
    side: str
    metric: str
    unit: str
    values: list[float]
    spread: Spread


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Ours over the peer's. Each value compares two rounds that followed each other."""

    suite: str
    workload: str
    metric: str
    peer: str
    spread: Spread


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of one of our own parts, with the target that it has, if any."""

    suite: str
    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A target of the comparison with Apache Kafka, and whether it was met."""

    name: str
    target: str
    ratio: Spread
    peer: str
    met: bool


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    cpu: str
    cores: int
    memory_gb: float
    system: str
    disk: str
    python: str
    java: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    format: int
    command: str
    started: str  # ISO 8601, UTC
    seconds: float
    quick: bool
    machine: Machine
    versions: dict[str, str]
    figures: list[Figure]
    ratios: list[Ratio]
    checks: list[Check]
    targets: list[Verdict]


def spread(values: Sequence[float]) -> Spread:
    """Of at least one value."""
    return Spread(statistics.median(values), min(values), max(values), len(values))


def pairwise(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ratios of rounds that followed each other, so that a noisy minute is in both."""
    return [one / other for one, other in zip(ours, theirs, strict=False) if other]


def ratios(figures: Iterable[Figure], ours: str, sides: Iterable[str]) -> list[Ratio]:
    """Ours against each other side, wherever both were measured."""
    found = {(figure.suite, figure.workload, figure.metric, figure.side): figure for figure in figures}
    made = []
    for (suite, workload, metric, side), figure in found.items():
        for peer in sides:
            other = found.get((suite, workload, metric, peer))
            if side != ours or other is None:
                continue
            values = pairwise(figure.values, other.values)
            if values:
                made.append(Ratio(suite=suite, workload=workload, metric=metric, peer=peer, spread=spread(values)))
    return made


def save(run: Run, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=1) + b"\n")


def load(path: Path) -> Run:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise LabError(f"{path} is not a result of `rafka-lab bench --json`: {error}") from None


def merge(runs: Sequence[Run]) -> Run:
    """Runs of different suites on one machine as one; where two have the same suite, the later one counts."""
    if not runs:
        raise LabError("there is no run to show")
    first = runs[0]
    parts: dict[str, tuple[list[Figure], list[Ratio], list[Check]]] = {}
    targets: dict[str, Verdict] = {}
    versions: dict[str, str] = {}
    for run in runs:
        names = dict.fromkeys([*(figure.suite for figure in run.figures), *(check.suite for check in run.checks)])
        for name in names:
            parts[name] = (
                [figure for figure in run.figures if figure.suite == name],
                [ratio for ratio in run.ratios if ratio.suite == name],
                [check for check in run.checks if check.suite == name],
            )
        targets |= {verdict.name: verdict for verdict in run.targets}
        versions |= run.versions
    return Run(
        format=FORMAT,
        command="\n".join(run.command for run in runs),
        started=first.started,
        seconds=sum(run.seconds for run in runs),
        quick=any(run.quick for run in runs),
        machine=first.machine,
        versions=versions,
        figures=[figure for figures, _, _ in parts.values() for figure in figures],
        ratios=[ratio for _, found, _ in parts.values() for ratio in found],
        checks=[check for _, _, checks in parts.values() for check in checks],
        targets=list(targets.values()),
    )
