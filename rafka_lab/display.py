"""A lab as HTML, for any front end that shows it: what runs, where, and what it holds. Needs no kernel once shown."""

import html
from typing import TYPE_CHECKING

from rafka_lab.rates import NodeRates

if TYPE_CHECKING:
    from rafka_lab.tools import LabTools

# Colours come from the notebook's theme where there is one, so that it fits light and dark. A class that is doubled
# wins over the notebook's own rules for tables.
STYLE = """
.rafka-lab { font: 13px/1.5 var(--jp-ui-font-family, system-ui, sans-serif); color: var(--jp-ui-font-color1, #1f2328);
  border: 1px solid var(--jp-border-color2, #d0d7de); border-radius: 10px; padding: 12px 16px; max-width: 860px; }
.rafka-lab header { display: flex; gap: 10px; align-items: baseline; margin-bottom: 8px; flex-wrap: wrap; }
.rafka-lab header b { font-size: 15px; }
.rafka-lab code { background: var(--jp-layout-color2, #eef1f4); color: inherit; padding: 1px 6px; border-radius: 5px; }
.rafka-lab table { border-collapse: collapse; width: 100%; margin: 0; table-layout: auto; }
.rafka-lab.rafka-lab table tr { background: none; }
.rafka-lab.rafka-lab table :is(th, td) { padding: 4px 10px 4px 0; text-align: left; background: none;
  border-bottom: 1px solid var(--jp-border-color3, #eaeef2); font-variant-numeric: tabular-nums; color: inherit; }
.rafka-lab.rafka-lab table th { font-weight: 500; color: var(--jp-ui-font-color2, #656d76); }
.rafka-lab.rafka-lab table :is(th, td).n { text-align: right; }
.rafka-lab.rafka-lab tr:last-child td { border-bottom: 0; }
.rafka-lab .dot { display: inline-block; width: 8px; height: 8px; border-radius: 50%; margin-right: 7px;
  background: #9aa4af; }
.rafka-lab .running .dot { background: #2da44e; }
.rafka-lab .paused .dot, .rafka-lab .starting .dot { background: #d4a72c; }
.rafka-lab .killed .dot, .rafka-lab .crashed .dot { background: #cf222e; }
.rafka-lab .muted { color: var(--jp-ui-font-color2, #656d76); }
"""
_UNITS = ("B", "kB", "MB", "GB", "TB")
_THOUSAND = 1000


def size(count: float) -> str:
    """Bytes for a person."""
    unit = 0
    while abs(count) >= _THOUSAND and unit < len(_UNITS) - 1:
        count /= _THOUSAND
        unit += 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def lab_html(lab: "LabTools") -> str:
    """The whole box."""
    if not lab.is_running:
        body = '<header><b>Lab</b><span class="muted">stopped; <code>lab.start()</code> starts it</span></header>'
        return f'<style>{STYLE}</style><div class="rafka-lab">{body}</div>'
    rows = "".join(_row(node) for node in lab.rates())
    traces = f"traces at <code>{html.escape(lab.traces_url)}</code>" if lab.traces_url else ""
    return (
        f'<style>{STYLE}</style><div class="rafka-lab"><header><b>Lab</b> Kafka at '
        f'<code>{html.escape(lab.bootstrap)}</code> {traces} <span class="muted">data in '
        f"{html.escape(str(lab.data))}</span></header><table><thead><tr><th>node</th><th>state</th><th>address</th>"
        '<th class="n">records</th><th class="n">log</th><th class="n">records/s</th><th class="n">memory</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _row(node: NodeRates) -> str:
    held = (
        f'<td class="n">{node.records:,}</td><td class="n">{size(node.log_bytes)}</td>'
        f'<td class="n">{node.records_per_s:,.0f}</td>'
        if node.role == "broker"
        else '<td class="n muted">–</td><td class="n muted">–</td><td class="n muted">–</td>'  # noqa: RUF001
    )
    return (
        f'<tr class="{node.state}"><td><span class="dot"></span>{html.escape(node.name)}</td><td>{node.state}</td>'
        f'<td>{html.escape(node.address)}</td>{held}<td class="n">{node.memory_mb:,.0f} MB</td></tr>'
    )
