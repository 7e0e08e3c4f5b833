"""A TCP proxy that passes requests on and, when told to, loses answers: the client does not know what happened."""

import contextlib
import socket
import threading

_API_KEY = slice(4, 6)  # behind the length; tests send small requests, one a packet
_PRODUCE = 0


class DroppingProxy:
    """Listens on loopback; `drop_answers(n)` closes a connection instead of passing on the next answer to a produce."""

    def __init__(self) -> None:
        self.target = ""  # host:port
        self._drops = 0
        self._last_request: dict[socket.socket, int] = {}  # API key, by the server's socket
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.dropped = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def drop_answers(self, count: int) -> None:
        with self._lock:
            self._drops = count

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(tuple(self.target.rsplit(":", 1)))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not answers and len(data) > _API_KEY.stop:
                    self._last_request[sink] = int.from_bytes(data[_API_KEY], "big")
                if answers and self._last_request.get(source) == _PRODUCE and self._drops_this():
                    break
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._open -= {source}
        source.close()

    def _drops_this(self) -> bool:
        with self._lock:
            if not self._drops:
                return False
            self._drops -= 1
            self.dropped += 1
            return True
