"""Charts of a lab's figures, with altair: per-hop latency, waterfall, throughput, faults, experiments, benchmarks."""

from typing import TYPE_CHECKING, Any, TypeAlias

from rafka_lab.errors import LabError

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd  # type: ignore[import-untyped]

    from rafka_lab.experiment import Results
    from traces.model import Trace

    Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart

WIDTH = 640
_ROW_HEIGHT = 26
_EDGE = 10
_HEIGHT = 240
# Readable on white and on black; the first two are the viewer's colours of gateway and broker.
COLORS = ("#4c7ef3", "#1f9d7c", "#d9822b", "#b65fd0", "#d64c5b", "#c7a008", "#3aa6c2", "#8a8f98")
_BLUE, _RED = COLORS[0], COLORS[4]


def hops(spans: "pd.DataFrame") -> "Chart":
    """Milliseconds of each hop over many traces: median and the middle half. `spans` is `lab.traces.frame()`."""
    import altair as alt

    order = spans.groupby("name")["offset_ms"].median().sort_values(kind="stable").index.tolist()
    y = alt.Y("name:N", sort=order, title=None)
    base = alt.Chart(_plain(spans, ["name", "service", "duration_ms"]), title="Latency per hop")
    bars = base.mark_bar(height=10, opacity=0.45).encode(
        y=y, x=alt.X("q1(duration_ms):Q", title="milliseconds"), x2="q3(duration_ms):Q", color=_service()
    )
    ticks = base.mark_tick(thickness=3, size=18).encode(
        y=y, x="median(duration_ms):Q", color=_service(), tooltip=["name", "median(duration_ms)", "count()"]
    )
    return alt.layer(bars, ticks).properties(width=WIDTH, height=_ROW_HEIGHT * len(order))


def waterfall(trace: "Trace") -> "Chart":
    """One trace: when each span began and how long it took."""
    import altair as alt

    frame = trace.to_dataframe()
    frame["label"] = [f"{'   ' * depth}{name}" for depth, name in zip(frame["depth"], frame["name"], strict=True)]
    frame["end_ms"] = frame["offset_ms"] + frame["duration_ms"]
    data = _plain(frame, ["label", "service", "offset_ms", "end_ms", "duration_ms"])
    chart: Chart = (
        alt.Chart(data, title=f"{trace.root.name}: {trace.duration_ms:.3f} ms")
        .mark_bar(height=14, cornerRadius=2)
        .encode(
            y=alt.Y("label:N", sort=None, title=None),
            x=alt.X("offset_ms:Q", title="milliseconds"),
            x2="end_ms:Q",
            color=_service(),
            tooltip=["label", "service", "duration_ms"],
        )
        .properties(width=WIDTH, height=_ROW_HEIGHT * len(frame))
    )
    return chart


def throughput(timeline: "pd.DataFrame", faults: "pd.DataFrame | None" = None) -> "Chart":
    """Acknowledged records a second over time, with a line for each fault. From `Ledger.timeline()`."""
    import altair as alt

    if timeline.empty:
        raise LabError("nothing was acknowledged, so there is nothing to draw")
    start = timeline["time"].iloc[0]
    line = (
        alt.Chart(_since(timeline, start), title="Acknowledged records a second")
        .mark_area(opacity=0.4, line={"color": _BLUE}, color=_BLUE, interpolate="step-after")
        .encode(x=alt.X("seconds:Q", title="seconds"), y=alt.Y("records_per_s:Q", title="records/s"))
    )
    if faults is None or faults.empty:
        return alt.layer(line).properties(width=WIDTH, height=_HEIGHT)
    return alt.layer(line, *_fault_marks(_since(faults, start))).properties(width=WIDTH, height=_HEIGHT)


def fault_timeline(faults: "pd.DataFrame") -> "Chart":
    """What was done to which node. From `lab.faults.timeline()`."""
    import altair as alt

    if faults.empty:
        raise LabError("no fault was made yet: see lab.faults")
    base = alt.Chart(_since(faults, faults["time"].iloc[0]), title="Faults").encode(
        x=alt.X("seconds:Q", title="seconds", scale=alt.Scale(padding=_EDGE)),
        y=alt.Y("node:N", title=None),
        tooltip=["time:T", "node", "fault", "detail"],
    )
    points = base.mark_point(filled=True, size=90, opacity=1).encode(color=alt.Color("fault:N", sort=None))
    return alt.layer(points).properties(width=WIDTH, height=_ROW_HEIGHT * max(2, faults["node"].nunique()))


def experiment(results: "Results", metric: str, x: str, color: str | None = None) -> "Chart":
    """A metric over one parameter: means, 95 % intervals, and every run as a dot."""
    import altair as alt

    summary = results.summary()
    chosen = summary[summary["metric"] == metric]
    if chosen.empty:
        raise LabError(f"there is no metric {metric!r}: use one of {', '.join(results.metrics)}")
    hue: dict[str, Any] = {"color": alt.Color(f"{color}:N")} if color else {}
    shift: dict[str, Any] = {"xOffset": f"{color}:N"} if color else {}
    axis = alt.X(f"{x}:O", title=x, axis=alt.Axis(labelAngle=0))
    dots = (
        alt.Chart(results.runs)
        .mark_circle(opacity=0.5, color=_BLUE)
        .encode(x=axis, y=alt.Y(f"{metric}:Q"), **hue, **shift)
    )
    means = (
        alt.Chart(chosen)
        .mark_point(filled=True, size=70, opacity=1, color=_BLUE)
        .encode(x=axis, y=alt.Y("mean:Q", title=metric), **hue, **shift)
    )
    layers = [dots, means]
    if (chosen["runs"] > 1).all():
        layers.append(alt.Chart(chosen).mark_rule(color=_BLUE).encode(x=axis, y="low:Q", y2="high:Q", **hue, **shift))
    return alt.layer(*layers).properties(width=WIDTH, height=_HEIGHT, title=f"{metric} by {x}")


def benchmark(figures: "pd.DataFrame", suite: str, metric: str) -> "Chart":
    """A metric of a suite's workloads, side by side: medians, and from the lowest round to the highest.

    `figures` is what `rafka_lab.bench.run.frame` gives.
    """
    import altair as alt

    chosen = figures[(figures["suite"] == suite) & (figures["metric"] == metric)]
    if chosen.empty:
        known = figures.loc[figures["suite"] == suite, "metric"].unique()
        raise LabError(f"{suite!r} has no metric {metric!r}: {', '.join(known) or 'the suite was not run'}")
    data = _plain(chosen, ["workload", "side", "median", "low", "high", "runs"])
    unit = chosen["unit"].iloc[0]
    whole_names = alt.Axis(labelLimit=0)
    y = alt.Y("workload:N", sort=chosen["workload"].drop_duplicates().tolist(), title=None, axis=whole_names)
    sides = chosen["side"].drop_duplicates().tolist()
    base = alt.Chart(data, title=f"{suite}: {metric}").encode(y=y, yOffset=alt.YOffset("side:N", sort=sides))
    bars = base.mark_bar(opacity=0.75).encode(
        x=alt.X("median:Q", title=unit),
        color=alt.Color("side:N", sort=sides),
        tooltip=["workload", "side", "median", "low", "high", "runs"],
    )
    spread = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    rows = chosen["workload"].nunique() * len(sides)
    return alt.layer(bars, spread).properties(width=WIDTH, height=_ROW_HEIGHT * max(2, rows))


def _fault_marks(faults: "pd.DataFrame") -> "list[Chart]":
    import altair as alt

    base = alt.Chart(faults).encode(x="seconds:Q")
    rules = base.mark_rule(strokeDash=[4, 3], color=_RED).encode(tooltip=["time:T", "node", "fault", "detail"])
    labels = base.mark_text(align="left", dx=4, dy=-8, baseline="top", color=_RED).encode(
        text="fault:N", y=alt.value(10)
    )
    return [rules, labels]


def _service() -> "alt.Color":
    """In the order of the data, so that the gateway comes first and has the viewer's colour."""
    import altair as alt

    return alt.Color("service:N", sort=None, scale=alt.Scale(range=list(COLORS)))


def _since(frame: "pd.DataFrame", start: "pd.Timestamp") -> "pd.DataFrame":
    """With a column of seconds: of what takes seconds, the time of day says little."""
    return frame.assign(seconds=(frame["time"] - start).dt.total_seconds())


def _plain(frame: "pd.DataFrame", columns: list[str]) -> "pd.DataFrame":
    """Only what is drawn: attributes with dots in their names confuse a chart, and make it large."""
    return frame[columns]
