"""The trace viewer in a notebook: `traces/viewer` as a widget, and as a page in a frame for exported notebooks."""

import html
import json
from collections.abc import Sequence
from typing import Any

import traitlets

from lab.widgets.static import StaticWidget
from traces.jaeger_json import trace_document
from traces.model import Trace
from traces.viewer import SCRIPT, STYLE, static_html

_HEIGHT = 560


class TraceViewer(StaticWidget):
    """Shows traces; `selected` is the id of the span that a person clicked on."""

    _esm = SCRIPT
    _css = STYLE
    traces: Any = traitlets.List().tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    selected = traitlets.Unicode("", allow_none=True).tag(sync=True)

    def __init__(self, traces: Sequence[Trace], **options: Any) -> None:
        self._given = list(traces)
        super().__init__(traces=[_document(trace) for trace in traces], **options)

    def static_html(self) -> str:
        # Exported pages are light, and a page in a frame cannot see that.
        page = static_html(self.traces, title="Traces", theme="light" if self.theme == "auto" else self.theme)
        return (
            f'<iframe title="trace viewer" srcdoc="{html.escape(page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{_HEIGHT}px;border:0;border-radius:10px"></iframe>'
        )


def _document(trace: Trace) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(trace_document(trace)))
    return document
