"""A real Chromium for the tests of this folder, a real collector, and a loopback server that can answer badly."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from traces.viewer import PAGE, SCRIPT, STYLE

# Chromium runs as root here and there, has no GPU, and must not talk to anyone.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
BARE_PAGE = (
    b'<!doctype html><link rel=stylesheet href="/viewer/viewer.css">'
    b"<p id=outside>outside</p><div id=a></div><div id=b></div>"
)
VIEWPORT = {"width": 1360, "height": 820}


@pytest.fixture(scope="module")
def browser(program: Callable[[str], str]) -> Iterator[Browser]:
    # Module scope: Playwright keeps an event loop running, which tests elsewhere must not meet.
    chromium = program("chromium")
    with sync_playwright() as started:
        running = started.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Any]]:
    """`new_page(color_scheme="dark")` is a fresh page. A script error or a dialog on it fails the test."""
    contexts, troubles = [], []

    def dismiss(dialog: Any) -> None:
        troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def make(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": VIEWPORT, "accept_downloads": True, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))
        page.on("dialog", dismiss)
        return page

    yield make
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Where test output goes that a person may want to look at: RAFKA_LAB_SCREENSHOTS, or tmp_path."""
    folder = Path(os.environ.get("RAFKA_LAB_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def keep(output: Path, request: pytest.FixtureRequest) -> Callable[[Any, str], None]:
    """`keep(page, "light")` keeps a screenshot as test output."""
    test = request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")

    def shoot(page: Any, name: str) -> None:
        path = output / f"{test}-{name}.png"
        page.screenshot(path=path)
        assert path.stat().st_size > 0

    return shoot


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[str]:
    """The address of a real collector process, empty at first."""
    command = [sys.executable, "-m", "traces", "--control-pipe", "--store", str(tmp_path / "spans.db")]
    root = Path(__file__).parents[2]
    with (
        open(tmp_path / "collector.log", "w") as log,
        subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready, (tmp_path / "collector.log").read_text()
        yield json.loads(ready)["traces"]
        process.stdin.close()
        assert process.wait(timeout=20) == 0, (tmp_path / "collector.log").read_text()


class TraceServer:
    """The viewer's files and the part of Jaeger's API v1 that they use, with failures that a test can ask for."""

    def __init__(self) -> None:
        self.traces: list[dict[str, Any]] = []
        self.broken = False
        self.stats: dict[str, int] | None = None  # a Jaeger has none
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = owner.answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: the tests look at answers, not at logs."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, target: str) -> tuple[int, str, bytes]:
        files = {"/": (PAGE, "text/html"), "/viewer/viewer.js": (SCRIPT, "text/javascript")}
        files["/viewer/viewer.css"] = (STYLE, "text/css")
        address = urlsplit(target)
        if address.path == "/bare":
            return HTTPStatus.OK, "text/html", BARE_PAGE
        if address.path in files:
            path, kind = files[address.path]
            return HTTPStatus.OK, f"{kind}; charset=utf-8", path.read_bytes()
        status, value = self.query(address.path)
        return status, "application/json", json.dumps(value).encode()

    def query(self, path: str) -> tuple[int, Any]:
        if self.broken:
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"data": None, "errors": [{"code": 500, "msg": "store is locked"}]}
        parts = path.strip("/").split("/")
        names = {process["serviceName"] for trace in self.traces for process in trace["processes"].values()}
        if parts == ["api", "stats"] and self.stats is not None:
            return HTTPStatus.OK, self.stats
        if parts == ["api", "services"]:
            return HTTPStatus.OK, {"data": sorted(names)}
        if parts[:2] == ["api", "services"]:
            return HTTPStatus.OK, {"data": sorted({span["operationName"] for t in self.traces for span in t["spans"]})}
        if parts == ["api", "traces"]:
            return HTTPStatus.OK, {"data": self.traces}
        found = [trace for trace in self.traces if parts[-1] == trace["traceID"]]
        if parts[:2] == ["api", "traces"] and found:
            return HTTPStatus.OK, {"data": found}
        return HTTPStatus.NOT_FOUND, {"data": None, "errors": [{"code": 404, "msg": "trace not found"}]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[TraceServer]:
    running = TraceServer()
    yield running
    running.close()
