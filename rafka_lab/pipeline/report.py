"""The data-quality report: one HTML file with a verdict, charts, and the tables behind them."""

import html
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

_STYLE = """
:root{color-scheme:light dark;--text:#222;--soft:#666;--line:#ddd;--page:#fff;--good:#176b2c;--bad:#a40000}
@media(prefers-color-scheme:dark){:root{--text:#ddd;--soft:#999;--line:#3a3a3a;--page:#171717;--good:#6fcf87;
--bad:#ff8a80}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:var(--text);
background:var(--page)}
h2{margin:2em 0 .2em;font-size:1.15em}p.note{margin:.1em 0 .8em;color:var(--soft)}
ul.checks{list-style:none;padding:0}.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
dl{display:flex;flex-wrap:wrap;gap:.5em 2.5em;margin:1em 0}dt{color:var(--soft);font-size:.85em}
dd{margin:0;font-size:1.5em;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:12px;font-variant-numeric:tabular-nums}
td,th{padding:3px 9px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
details{margin:.6em 0}summary{cursor:pointer}
svg{max-width:100%;height:auto}svg text{fill:var(--text)}svg .role-axis-grid line{stroke:var(--line)}
svg .role-axis-domain line,svg .role-axis-tick line{stroke:var(--soft)}svg path.background{stroke:var(--line)}
"""
# Longer tables are cut in the report; the files have them whole.
SHOWN_ROWS = 200
_WIDTH = 620


class _Plot(NamedTuple):
    """A bar chart of a table, and what it tells."""

    table: str
    title: str
    note: str
    x: str
    unit: str
    y: str
    colour: str
    order: str | None = None


_PLOTS = (
    _Plot(
        "partitions",
        "Records by partition",
        "How evenly topics are spread.",
        "records",
        "records",
        "topic",
        "partition",
    ),
    _Plot(
        "codecs",
        "Compression",
        "Bytes of keys and values for each byte on disk; below 1 the log is larger than its data.",
        "ratio",
        "plain bytes / stored bytes",
        "codec",
        "topic",
    ),
    _Plot(
        "latency",
        "From the producer's clock to the log",
        "99 of 100 records were appended within this time of their own timestamp.",
        "p99",
        "milliseconds",
        "topic",
        "partition",
    ),
    _Plot(
        "key_skew", "Keys with the most records", "Their share of the topic.", "share", "share", "key", "topic", "-x"
    ),
    _Plot(
        "hops",
        "Where a produce spends its time",
        "Median of each span, of the requests that stored these records.",
        "p50",
        "milliseconds",
        "name",
        "service",
        "-x",
    ),
)


def write_report(target: Path, tables: dict[str, pa.Table]) -> None:
    """Writes the report, whole or not at all."""
    frames = {name: table.to_pandas() for name, table in tables.items()}
    parts = [_verdict(frames)]
    for plot in _PLOTS:
        if plot.table in frames and len(frames[plot.table]):
            note = f"<p class=note>{html.escape(plot.note)}</p>"
            parts += [f"<h2>{html.escape(plot.title)}</h2>{note}", _drawn(_bars(plot, frames[plot.table]), plot.table)]
    parts += ["<h2>Tables</h2>", *(_table(name, frame) for name, frame in frames.items())]
    page = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Data quality</title><style>{_STYLE}</style>"
    )
    unfinished = target.with_suffix(".new")
    unfinished.write_text(f"{page}<h1>Data quality</h1>{''.join(parts)}</html>", encoding="utf-8")
    unfinished.replace(target)


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _verdict(frames: dict[str, pd.DataFrame]) -> str:
    parts = frames["partitions"]
    records, missing, twice = (int(parts[name].sum()) for name in ("records", "missing", "duplicates"))
    checks = [
        (missing == 0, f"{missing:,} offsets are missing" if missing else "no offset is missing"),
        (twice == 0, f"{twice:,} offsets are there twice" if twice else "no offset is there twice"),
    ]
    lines = "".join(
        f"<li class={'good' if good else 'bad'}>{'&#10003; passed' if good else '&#10007; FAILED'}: {text}</li>"
        for good, text in checks
    )
    figures = {
        "records": f"{records:,}",
        "topics": f"{parts['topic'].nunique():,}",
        "partitions": f"{len(parts):,}",
        "batches": f"{int(parts['batches'].sum()):,}",
        "bytes on disk": f"{int(frames['codecs']['stored_bytes'].sum()):,}",
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return f"<ul class=checks>{lines}</ul><dl>{shown}</dl>"


def _shown_keys(frame: pd.DataFrame) -> list[str]:
    return [bytes(key).decode(errors="backslashreplace")[:40] for key in frame["key"]]


def _bars(plot: _Plot, frame: pd.DataFrame) -> alt.Chart:
    shown = frame.assign(key=_shown_keys) if plot.y == "key" else frame
    rows = shown[[plot.x, plot.y, plot.colour]].astype({plot.y: str, plot.colour: str})
    encoded = (
        alt.Chart(rows)
        .mark_bar()
        .encode(
            x=alt.X(f"{plot.x}:Q", title=plot.unit),
            y=alt.Y(f"{plot.y}:N", sort=plot.order, title=None),
            yOffset=f"{plot.colour}:N",
            color=f"{plot.colour}:N",
            tooltip=[plot.y, plot.colour, plot.x],
        )
    )
    chart: alt.Chart = encoded.properties(width=_WIDTH, background="transparent")
    return chart


def _drawn(chart: alt.Chart, name: str) -> str:
    """The chart as a picture where vl-convert is installed, else drawn by altair's script, which needs a network."""
    if importlib.util.find_spec("vl_convert") is not None:
        converter: Any = importlib.import_module("vl_convert")
        return str(converter.vegalite_to_svg(chart.to_json()))
    return str(chart.to_html(fullhtml=False, output_div=f"chart-{name}"))


def _table(name: str, frame: pd.DataFrame) -> str:
    shown = frame.head(SHOWN_ROWS).assign(**({"key": _shown_keys} if "key" in frame else {}))
    cut = f" (the first {SHOWN_ROWS} of {len(frame):,})" if len(frame) > SHOWN_ROWS else ""
    body = shown.to_html(index=False, border=0, float_format=lambda number: f"{number:,.3f}")
    wide = f"<div class=wide>{body}</div>"
    return f"<details{' open' if name == 'partitions' else ''}><summary>{_title(name)}{cut}</summary>{wide}</details>"
