"""Pages of other servers inside a notebook: the trace viewer, or a real Jaeger's own page."""

import html
import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from rafka_lab.traces_view import Traces

HEIGHT = 640
# JupyterHub sets it; where a notebook is served below a path, the browser is likely on another machine.
_PREFIX_VARIABLE = "JUPYTERHUB_SERVICE_PREFIX"
# Set it to `1` where Jupyter runs on another machine without a hub (SSH aside), to go through jupyter-server-proxy.
PROXY_VARIABLE = "RAFKA_LAB_PROXY"
# Tells the page in the frame which theme JupyterLab has, and each time that changes.
_FOLLOW_THEME = """(name) => {
  const frame = document.getElementById(name);
  const tell = () => {
    const light = document.body.dataset.jpThemeLight;
    if (light !== undefined) frame.contentWindow?.postMessage({theme: light === "false" ? "dark" : "light"}, "*");
  };
  frame.addEventListener("load", tell);
  new MutationObserver(tell).observe(document.body, {attributes: true, attributeFilter: ["data-jp-theme-light"]});
}"""


@dataclass(frozen=True)
class Frame:
    """A page in a frame; its text is its address."""

    url: str
    title: str
    height: int = HEIGHT

    def __str__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        address, name = html.escape(self.url), f"rafka-{uuid.uuid4().hex[:12]}"
        return (
            f'<iframe id="{name}" src="{address}" title="{html.escape(self.title)}" '
            f'style="width:100%;height:{self.height}px;border:1px solid var(--jp-border-color2, #d0d7de);'
            f'border-radius:10px"></iframe><p><a href="{address}" target="_blank" rel="noopener">open in a tab</a></p>'
            f"<script>({_FOLLOW_THEME})('{name}')</script>"
        )


def jaeger_frame(traces: "Traces", *, real: bool) -> Frame:
    """The page for `traces`, a real Jaeger's own or the viewer; raises where nothing collects any."""
    return Frame(traces_page(proxied(traces.client.url), real=real), "Jaeger" if real else "Trace viewer")


def traces_page(url: str, *, real: bool) -> str:
    """Where a trace store shows its traces; Jaeger leaves its navigation out when it is in a frame."""
    return f"{url.rstrip('/')}/search?uiEmbed=v0" if real else f"{url.rstrip('/')}/"


def proxied(url: str) -> str:
    """The address as the browser reaches it: through jupyter-server-proxy where the notebook is remote."""
    parts = urlsplit(url)
    prefix = os.environ.get(_PREFIX_VARIABLE)
    if prefix is None and os.environ.get(PROXY_VARIABLE) != "1":
        return url.rstrip("/")
    host = "" if parts.hostname in ("127.0.0.1", "localhost", "::1") else f"{quote(parts.hostname or '')}:"
    return f"{(prefix or '/').rstrip('/')}/proxy/{host}{parts.port or 80}{parts.path}".rstrip("/")
