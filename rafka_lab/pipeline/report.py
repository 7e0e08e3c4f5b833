"""The data-quality report: one HTML file with a verdict, charts, and the tables behind them."""

import html
import importlib.util
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

_STYLE = (
    "body{font:14px system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-size:12px}td,th{padding:3px 9px;border-bottom:1px solid #ddd;text-align:right}"
    ".good{color:#176b2c}.bad{color:#a40000}details{margin:.6em 0}"
)
# Longer tables are cut in the report; the files have them whole.
SHOWN_ROWS = 200
_WIDTH = 620


def write_report(target: Path, tables: dict[str, pa.Table]) -> None:
    """Writes the report, whole or not at all."""
    frames = {name: table.to_pandas() for name, table in tables.items()}
    parts = [_verdict(frames)]
    for name, chart in _charts(frames).items():
        parts += [f"<h2>{html.escape(_title(name))}</h2>", _drawn(chart, name)]
    parts += ["<h2>Tables</h2>", *(_table(name, frame) for name, frame in frames.items())]
    page = f"<!doctype html><html lang=en><meta charset=utf-8><title>Data quality</title><style>{_STYLE}</style>"
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
        f"<li class={'good' if good else 'bad'}>{'passed' if good else 'FAILED'}: {text}</li>" for good, text in checks
    )
    return (
        f"<p>{records:,} records in {len(parts)} partitions of {parts['topic'].nunique()} topics.</p><ul>{lines}</ul>"
    )


def _charts(frames: dict[str, pd.DataFrame]) -> dict[str, alt.Chart]:
    charts = {
        "partitions": _bars(frames["partitions"], "records:Q", "topic:N", "partition:O"),
        "codecs": _bars(frames["codecs"], "ratio:Q", "codec:N", "topic:N"),
        "latency": _bars(frames["latency"], "p99:Q", "topic:N", "partition:O"),
        "key_skew": _bars(frames["key_skew"].assign(key=_shown_keys), "share:Q", "key:N", "topic:N", order="-x"),
    }
    if "hops" in frames:
        charts["hops"] = _bars(frames["hops"], "p50:Q", "name:N", "service:N")
    return charts


def _shown_keys(frame: pd.DataFrame) -> list[str]:
    return [bytes(key).decode(errors="backslashreplace")[:40] for key in frame["key"]]


def _bars(frame: pd.DataFrame, x: str, y: str, colour: str, order: str | None = None) -> alt.Chart:
    wanted = [name.partition(":")[0] for name in (x, y, colour)]
    rows = frame[wanted].astype(dict.fromkeys(wanted[1:], str))
    encoded = (
        alt.Chart(rows).mark_bar().encode(x=alt.X(x), y=alt.Y(y, sort=order, title=None), color=colour, tooltip=wanted)
    )
    chart: alt.Chart = encoded.properties(width=_WIDTH)
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
    return f"<details{' open' if name == 'partitions' else ''}><summary>{_title(name)}{cut}</summary>{body}</details>"
