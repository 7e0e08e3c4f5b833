"""A Kafka client that sends exactly what a test tells it to, encoded by kio, and shows the answer."""

import importlib
import io
import socket
import struct
from types import ModuleType, TracebackType
from typing import Any

from kio.serial import entity_reader, entity_writer


class RawClient:
    """One connection."""

    def __init__(self, bootstrap: str, timeout: float = 20) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout)
        self._correlation = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.socket.close()

    def send_bytes(self, api_key: int, version: int, body: bytes, *, flexible: bool = False) -> int:
        """Sends a request of any body; its correlation id."""
        self._correlation += 1
        header = struct.pack(">hhih", api_key, version, self._correlation, 3) + b"raw" + (b"\0" if flexible else b"")
        self.socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        return self._correlation

    def receive_bytes(self) -> tuple[int, bytes]:
        """The next answer: its correlation id and what follows it."""
        (length,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(length)
        return struct.unpack(">i", frame[:4])[0], frame[4:]

    def is_closed(self) -> bool:
        """Whether the other side has closed the connection (waits for it)."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the connection was closed")
            data += piece
        return data

    def send(self, request: Any) -> int:
        """Sends a kio request entity."""
        kind = type(request)
        body = io.BytesIO()
        entity_writer(kind)(body, request)
        return self.send_bytes(kind.__api_key__, kind.__version__, body.getvalue(), flexible=kind.__flexible__)

    def receive(self, kind: type[Any]) -> Any:
        """The next answer as a kio response entity."""
        _, data = self.receive_bytes()
        at = 1 if kind.__flexible__ and kind.__api_key__ != 18 else 0
        entity, _ = entity_reader(kind)(data, at)
        return entity

    def ask(self, request: Any, kind: type[Any]) -> Any:
        self.send(request)
        return self.receive(kind)


def schema(api: str, version: int, side: str) -> ModuleType:
    """kio's module of one version: `schema("fetch", 11, "request")`."""
    return importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
