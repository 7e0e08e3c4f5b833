"""Pages of other servers inside a notebook: the trace viewer, or a real Jaeger's own page."""

import html
import os
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from rafka_lab.traces_view import Traces
from traces.jaeger_program import URL_VARIABLE

HEIGHT = 640
# JupyterHub sets it; where a notebook is served below a path, the browser is likely on another machine.
_PREFIX_VARIABLE = "JUPYTERHUB_SERVICE_PREFIX"
# Set it to `1` where Jupyter runs on another machine without a hub (SSH aside), to go through jupyter-server-proxy.
PROXY_VARIABLE = "RAFKA_LAB_PROXY"


@dataclass(frozen=True)
class Frame:
    """A page in a frame; its text is its address."""

    url: str
    title: str
    height: int = HEIGHT

    def __str__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        address = html.escape(self.url)
        return (
            f'<iframe src="{address}" title="{html.escape(self.title)}" '
            f'style="width:100%;height:{self.height}px;border:1px solid var(--jp-border-color2, #d0d7de);'
            f'border-radius:10px"></iframe><p><a href="{address}" target="_blank" rel="noopener">open in a tab</a></p>'
        )


def jaeger_frame(traces: Traces) -> Frame:
    """The page for `traces`; raises where nothing collects any."""
    url = traces.client.url
    real = os.environ.get(URL_VARIABLE, "").rstrip("/") == url
    page = f"{proxied(url)}/search?uiEmbed=v0" if real else f"{proxied(url)}/"
    return Frame(page, "Jaeger" if real else "Trace viewer")


def proxied(url: str) -> str:
    """The address as the browser reaches it: through jupyter-server-proxy where the notebook is remote."""
    parts = urlsplit(url)
    prefix = os.environ.get(_PREFIX_VARIABLE)
    if prefix is None and os.environ.get(PROXY_VARIABLE) != "1":
        return url.rstrip("/")
    host = "" if parts.hostname in ("127.0.0.1", "localhost", "::1") else f"{quote(parts.hostname or '')}:"
    return f"{(prefix or '/').rstrip('/')}/proxy/{host}{parts.port or 80}{parts.path}".rstrip("/")
