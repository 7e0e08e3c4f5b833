"""The collector: store, receivers and query API of one process, from start to an end that loses nothing."""

import asyncio
import logging
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler, StaticFileHandler

from traces.errors import StoreError
from traces.grpc_otlp import GrpcServer
from traces.http_otlp import DISCARD_FACTOR, ExportHandler
from traces.http_query import ROUTES, NotFound
from traces.reader import Reader
from traces.receiver import Limits, Receiver
from traces.store import Store, StoreSettings

log = logging.getLogger("traces.collector")

HOST = "127.0.0.1"
VIEWER = Path(__file__).parent / "viewer"
# For requests under way when the process ends.
STOP_SECONDS = 5.0
_STOP_LOOK = 0.005
# Two questions at once; SQLite reads in parallel.
_QUERY_THREADS = 2


@dataclass(frozen=True, kw_only=True)
class CollectorSettings:
    """How one collector runs. Port 0 is a free one; without a file the store is a temporary one."""

    port: int = 0
    grpc_port: int = 0
    store: Path | None = None
    store_settings: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)


class _Page(RequestHandler):
    """The viewer's page."""

    async def get(self) -> None:
        page = VIEWER / "index.html"
        if not page.is_file():
            self.set_status(404)
            self.finish(f"the viewer's page {page.name} is not installed; the API is at /api/traces\n")
            return
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.finish(page.read_bytes())


class _ViewerFile(StaticFileHandler):
    """The viewer's script and style: asked for anew each time, so that a page never meets an older script."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")


class Collector:
    """Start it in a running event loop."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        path = settings.store
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rafka-traces-")
            path = Path(self._folder.name) / "traces.db"
        self.store = Store(path, settings.store_settings)
        self._reader = Reader(path)
        self._receiver = Receiver(self.store, settings.limits)
        self._taking = ThreadPoolExecutor(1, thread_name_prefix="traces-take")
        self._asking = ThreadPoolExecutor(_QUERY_THREADS, thread_name_prefix="traces-query")
        self._http: HTTPServer | None = None
        self._grpc: GrpcServer | None = None
        self._settings = settings

    def start(self) -> dict[str, Any]:
        """Listens; returns what the ready line says."""
        port, grpc_port = self._settings.port, self._settings.grpc_port
        try:
            sockets = bind_sockets(port, HOST, reuse_port=False)
        except OSError as error:
            raise StoreError(f"cannot listen on {HOST}:{port}: {error.strerror}; choose another --port") from None
        self._http = HTTPServer(self._application(), max_body_size=self._settings.limits.body_bytes * DISCARD_FACTOR)
        self._http.add_sockets(sockets)
        self._grpc = GrpcServer(self._receiver, HOST, grpc_port)
        self._grpc.start()
        url = f"http://{HOST}:{sockets[0].getsockname()[1]}"
        return {"traces": url, "grpc": f"{HOST}:{self._grpc.port}", "store": str(self.store.path)}

    async def stop(self) -> None:
        """Takes no more, finishes what was taken, closes the store."""
        if self._http is not None:
            self._http.stop()
        if self._grpc is not None:
            await asyncio.to_thread(self._grpc.stop, STOP_SECONDS)
        deadline = time.monotonic() + STOP_SECONDS
        while self._receiver.under_way and time.monotonic() < deadline:
            await asyncio.sleep(_STOP_LOOK)
        await asyncio.to_thread(self.store.close)
        if self._http is not None:
            await self._http.close_all_connections()
        self._taking.shutdown()
        self._asking.shutdown()
        self._reader.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _application(self) -> Application:
        asked = {"reader": self._reader, "store": self.store, "executor": self._asking}
        given = {"receiver": self._receiver, "executor": self._taking}
        routes: list[Any] = [(r"/v1/traces", ExportHandler, given), (r"/", _Page)]
        routes += [(path, handler, asked) for path, handler in ROUTES]
        routes.append((r"/viewer/(viewer\.(?:js|css))", _ViewerFile, {"path": str(VIEWER)}))
        return Application(
            routes, default_handler_class=NotFound, default_handler_args=asked, log_function=lambda handler: None
        )
