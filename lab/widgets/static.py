"""What all widgets share: their style, and a static form beside the live one for exported notebooks."""

from pathlib import Path
from typing import Any

import anywidget

FOLDER = Path(__file__).parent
THEME = (FOLDER / "theme.css").read_text("utf-8")
SHARED = (FOLDER / "shared.js").read_text("utf-8")


def script(name: str) -> str:
    """What all widgets share, then the widget's own script: one module, as a browser wants it."""
    return SHARED + (FOLDER / f"{name}.js").read_text("utf-8")


def style(name: str) -> str:
    """The shared theme, then the widget's own rules."""
    return THEME + (FOLDER / f"{name}.css").read_text("utf-8")


class StaticWidget(anywidget.AnyWidget):
    """A widget that also says what it shows as HTML, which works without a kernel."""

    def static_html(self) -> str:
        """The form for exported notebooks, papermill's output and mails."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **options: Any) -> Any:
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None:
            return {"text/plain": repr(self), "text/html": self.static_html()}
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/html": self.static_html()}, metadata
