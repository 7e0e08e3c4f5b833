"""The pages of a regression run: each notebook as HTML, an index, and JUnit's XML for CI."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from lab.regress import Outcome

_WIDGET = "application/vnd.jupyter.widget-view+json"
_CHART = "application/vnd.vegalite.v"
_STYLE = """
:root { color-scheme: light dark; --text: #1f2328; --muted: #656d76; --line: #d0d7de; --ground: #fff; --soft: #f6f8fa;
  --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; --link: #0969da; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --muted: #8d96a0; --line: #30363d; --ground: #0d1117;
  --soft: #161b22; --good: #3fb950; --bad: #f85149; --warn: #d29922; --link: #58a6ff; } }
body { font: 15px/1.55 system-ui, sans-serif; color: var(--text); background: var(--ground); margin: 0 auto;
  max-width: 1000px; padding: 32px 20px; }
h1 { font-size: 24px; margin: 0 0 4px; } p { color: var(--muted); margin: 0 0 20px; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--muted); font-weight: 500; }
th, td { padding: 9px 12px 9px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
:is(th, td).n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.passed { color: var(--good); } .failed { color: var(--bad); } .skipped { color: var(--warn); }
.status { font-weight: 600; white-space: nowrap; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; overflow: auto;
  max-height: 320px; font-size: 12.5px; margin: 8px 0 0; }
summary { cursor: pointer; color: var(--muted); }
"""


def write_page(notebook: Path) -> Path:
    """The executed notebook as one HTML page, with the static form of each widget."""
    import nbformat
    from nbconvert.exporters import HTMLExporter

    document = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    document.metadata.pop("widgets", None)
    for cell in document.cells:
        for output in cell.get("outputs", ()):
            _make_static(output)
    page, _ = HTMLExporter(embed_images=True).from_notebook_node(document)  # type: ignore[no-untyped-call]
    target = notebook.with_suffix(".html")
    target.write_text(page, "utf-8")
    return target


def _make_static(output: Any) -> None:
    data = output.get("data", {})
    if "text/html" in data:
        data.pop(_WIDGET, None)
    for kind in [kind for kind in data if kind.startswith(_CHART)]:
        data["text/html"] = chart_html(data.pop(kind))


def chart_html(chart: dict[str, Any]) -> str:
    """A chart as a picture, so that a page needs neither a script nor a network."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(chart))


def write_index(outcomes: Sequence["Outcome"], out: Path) -> Path:
    """The page that links all others."""
    count = {status: sum(one.status == status for one in outcomes) for status in ("passed", "failed", "skipped")}
    total = sum(one.seconds for one in outcomes)
    rows = "".join(_row(one) for one in outcomes)
    summary = ", ".join(f"{number} {status}" for status, number in count.items() if number)
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Regression: {summary}</title><style>{_STYLE}</style><h1>Notebook regression</h1>"
        f"<p>{summary}; {total:.1f} s of notebooks</p><table><thead><tr><th>result</th><th>notebook</th>"
        f'<th>first error</th><th class="n">seconds</th></tr></thead><tbody>{rows}</tbody></table></html>'
    )
    target = out / "index.html"
    target.write_text(page, "utf-8")
    return target


def _row(one: "Outcome") -> str:
    name = html.escape(one.job.name)
    link = name if one.status == "skipped" else f'<a href="{name}.html">{name}</a>'
    shown = f'<tr><td class="status {one.status}">{one.status}</td><td>{link}</td><td>{_error(one)}</td>'
    return f'{shown}<td class="n">{one.seconds:.1f}</td></tr>'


def _error(one: "Outcome") -> str:
    if one.status != "failed":
        return html.escape(one.error)
    place = f"cell {one.cell}: " if one.cell else ""
    return (
        f"<details><summary>{place}{html.escape(one.first_line)}</summary><pre>{html.escape(one.source)}</pre>"
        f"<pre>{html.escape(one.error)}</pre></details>"
    )


def write_junit(outcomes: Sequence["Outcome"], out: Path) -> Path:
    """JUnit's XML, which CI systems read."""
    suite = ElementTree.Element(
        "testsuite",
        name="notebooks",
        tests=str(len(outcomes)),
        failures=str(sum(one.status == "failed" for one in outcomes)),
        skipped=str(sum(one.status == "skipped" for one in outcomes)),
        errors="0",
        time=f"{sum(one.seconds for one in outcomes):.3f}",
    )
    for one in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname="notebooks", name=one.job.name, time=f"{one.seconds:.3f}"
        )
        if one.status == "failed":
            place = f"cell {one.cell}: " if one.cell else ""
            failure = ElementTree.SubElement(case, "failure", message=_printable(f"{place}{one.first_line}"))
            failure.text = _printable(f"{one.source}\n\n{one.error}")
        elif one.status == "skipped":
            ElementTree.SubElement(case, "skipped", message=_printable(one.error))
    target = out / "junit.xml"
    ElementTree.ElementTree(suite).write(target, "utf-8", xml_declaration=True)
    return target


def _printable(text: str) -> str:
    """XML has no way to write most control characters."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable())
