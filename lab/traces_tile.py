"""The tile in JupyterLab's launcher: the traces of the labs that run here, whatever kernel started them, in a tab.

jupyter-server-proxy shows the tile and starts this program when somebody clicks on it. The program serves one page,
which asks it what runs and shows the trace viewer (or a real Jaeger) in a frame.
"""

import argparse
import json
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rafka_lab.registry import running

PAGE = Path(__file__).with_suffix(".html")
ICON = Path(__file__).with_suffix(".svg")
# Python takes a moment to start on a busy machine; the proxy's own 5 s are short for that.
START_SECONDS = 20


def server() -> dict[str, Any]:
    """What jupyter-server-proxy's entry point asks for."""
    return {
        "command": [sys.executable, "-m", "lab.traces_tile", "--port", "{port}"],
        "timeout": START_SECONDS,
        "new_browser_tab": False,
        # JupyterLab shows icons that come from elsewhere in this category only.
        "launcher_entry": {"title": "Traces", "icon_path": str(ICON), "category": "Notebook"},
    }


def labs() -> list[dict[str, Any]]:
    """The labs that run, with what the page needs to show their traces."""
    return [
        {
            "title": " · ".join(filter(None, (lab["notebook"], lab["bootstrap"]))),
            "page": lab["page"],
            "jaeger": lab["jaeger"],
            "port": urlsplit(lab["page"]).port,
        }
        for lab in running()
    ]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/":
            self._answer("text/html; charset=utf-8", PAGE.read_bytes())
        elif path == "/labs":
            self._answer("application/json", json.dumps(labs()).encode())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_arguments: Any) -> None:
        """Every look at what runs would be a line in Jupyter's log."""


def main() -> None:
    flags = argparse.ArgumentParser(prog="lab.traces_tile", description=__doc__)
    flags.add_argument("--port", type=int, required=True)
    ThreadingHTTPServer(("127.0.0.1", flags.parse_args().port), _Handler).serve_forever()


if __name__ == "__main__":
    main()
