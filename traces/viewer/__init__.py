"""The trace viewer's files, and the static form: one HTML page that shows traces without a kernel or a network.

The viewer itself is `viewer.js`; this module only wraps it. Traces are dictionaries in Jaeger's v1 JSON form.
"""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SCRIPT = FOLDER / "viewer.js"
STYLE = FOLDER / "viewer.css"
PAGE = FOLDER / "index.html"

# Above this JavaScript's numbers lose digits; Jaeger itself writes such integers as strings.
MAX_SAFE_INTEGER = 2**53 - 1

THEMES = ("auto", "light", "dark")

_PAGE_STYLE = (
    "html, body { margin: 0; height: 100%; } #viewer { --rtv-height: 100vh; --rtv-border: 0; --rtv-radius: 0; }"
)
_START = """
mount(document.getElementById("viewer"), JSON.parse(document.getElementById("options").textContent));
"""
_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="viewer"></div>
<noscript>This page needs JavaScript. The traces are in its source, as JSON.</noscript>
<script type="application/json" id="options">{options}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def static_html(
    traces: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    *,
    title: str = "Traces",
    theme: str = "auto",
    mode: str | None = None,
    trace_id: str | None = None,
) -> str:
    """One self-contained page for one trace, a list of them, or Jaeger's `{"data": [...]}` answer.

    Nothing in a trace can become markup or script: data is JSON with `<` escaped, the viewer writes text nodes
    only, and the page's policy runs no script but the viewer's own, known by its hash.
    """
    if theme not in THEMES:
        raise ValueError(f"theme is {theme!r}; use one of {', '.join(THEMES)}")
    script = SCRIPT.read_text("utf-8") + _START
    style = STYLE.read_text("utf-8") + _PAGE_STYLE
    options = {"traces": _trace_list(traces), "theme": theme, "mode": mode, "traceId": trace_id}
    return _TEMPLATE.format(
        policy=(
            f"default-src 'none'; script-src {_source_hash(script)}; style-src {_source_hash(style)}; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ),
        title=html.escape(title),
        style=style,
        options=_embedded_json({name: value for name, value in options.items() if value is not None}),
        script=script,
    )


def _trace_list(traces: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if isinstance(traces, Mapping):
        data = traces.get("data")
        found = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else [traces]
    else:
        found = list(traces)
    for index, trace in enumerate(found):
        if not isinstance(trace, Mapping) or not isinstance(trace.get("spans"), Sequence):
            raise ValueError(
                f"trace {index + 1} of {len(found)} has no list of spans; "
                'pass Jaeger v1 traces: a trace, a list of traces, or {"data": [...]}'
            )
    return found


def _embedded_json(value: object) -> str:
    # A script element ends at "</script" wherever it stands, and "<!--" changes how it is read.
    return json.dumps(_browser_safe(value), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _browser_safe(value: object) -> object:
    """The same data with what JSON or JavaScript cannot hold (huge integers, NaN) as text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        # A lone surrogate cannot be written as UTF-8.
        return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {_browser_safe(str(key)): _browser_safe(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_browser_safe(item) for item in value]
    raise TypeError(f"a trace holds a {type(value).__name__}, which JSON does not have: {value!r:.80}")


def _source_hash(source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
