"""Many connections with one small produce in flight each, on bare sockets and epoll, so that the client costs little.

librdkafka has a thread a connection and a queue in front of it; here a request costs one `recv` and one `send`. What
this client can do at most shows against librdkafka's mock cluster, which the suite measures beside the others.
"""

import resource
import select
import socket
import struct
import time

from rafka_lab.bench.payloads import pool
from rafka_lab.bench.tasks import Outcome, Task
from wal.records import NewRecord, build_batch

_PRODUCE, _VERSION, _TIMEOUT_MS = 0, 7, 30_000
_ACKS = {"all": -1, "1": 1}
_LENGTH = struct.Struct(">i")
_ERROR = struct.Struct(">h")
_ANSWER_BYTES = 4096
# Besides connections: what Python and the libraries have open.
_OTHER_FILES = 64
_SILENCE_SECONDS = 30.0


def produce_request(topic: str, acks: str, batch: bytes) -> bytes:
    """Produce 7 with one batch for partition 0, with its length in front. The correlation id is always 1."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    header = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1)
    body = struct.pack(">hhii", -1, _ACKS[acks], _TIMEOUT_MS, 1) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return _LENGTH.pack(len(header) + len(body)) + header + body


def requests(task: Task) -> Outcome:
    """Answered requests; each connection sends its next one when it has its answer."""
    request = produce_request(
        task.topic, task.acks, build_batch([NewRecord(None, pool("text", task.message_bytes)[0])])
    )
    _allow_files(task.connections)
    sockets = _connect(task.bootstrap, task.connections)
    # Length, correlation id, two counts and the name, partition; then the error code.
    error_at = 4 + 4 + 4 + 2 + len(task.topic) + 4 + 4
    poller = select.epoll()
    for number in sockets:
        poller.register(number, select.EPOLLIN)
    for connection in sockets.values():
        connection.sendall(request)
    begun = time.process_time()
    answered, total = _drive(poller, sockets, request, error_at, task)
    for connection in sockets.values():
        connection.close()
    return Outcome(messages=answered, seconds=task.seconds, total=total, client_cpu=time.process_time() - begun)


def _drive(
    poller: select.epoll, sockets: dict[int, socket.socket], request: bytes, error_at: int, task: Task
) -> tuple[int, int]:
    """Answers in the window, and in all."""
    total = before = 0
    now = time.perf_counter()
    opened = now + task.warm_up
    end = opened + task.seconds
    while now < end:
        ready = poller.poll(_SILENCE_SECONDS)
        if not ready:
            raise SystemExit(f"no answer within {_SILENCE_SECONDS:g} s, after {total} of them")
        now = time.perf_counter()
        if now < opened:
            before = total
        for number, _ in ready:
            connection = sockets[number]
            answer = connection.recv(_ANSWER_BYTES)
            (error,) = _ERROR.unpack_from(_whole(answer, connection), error_at)
            if error:
                raise SystemExit(f"a produce was answered with Kafka's error {error}")
            connection.sendall(request)
        total += len(ready)
    return total - before, total


def _whole(answer: bytes, connection: socket.socket) -> bytes:
    """Nearly always it is; an answer may come in pieces though."""
    while len(answer) < _LENGTH.size or len(answer) < _LENGTH.size + _LENGTH.unpack_from(answer)[0]:
        more = connection.recv(_ANSWER_BYTES)
        if not more:
            raise SystemExit("a connection was closed in the middle of an answer")
        answer += more
    return answer


def _connect(bootstrap: str, count: int) -> dict[int, socket.socket]:
    host, _, port = bootstrap.rpartition(":")
    sockets = {}
    for _ in range(count):
        connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_SILENCE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(None)
        sockets[connection.fileno()] = connection
    return sockets


def _allow_files(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            raise SystemExit(f"{connections} connections need {wanted} open files; the limit is {hard} (ulimit -n)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
