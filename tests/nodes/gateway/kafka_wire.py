"""A Kafka client of single frames: kafka-python's message classes (aiokafka's for old versions) on a plain socket."""

import io
import socket
import struct
import sys
import uuid
from typing import Any, Self

from aiokafka.protocol.api import RequestHeader_v1
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.producer import ProduceRequest

from wal.records import build_batch

TIMEOUT = 20.0


class Client:
    """One connection. `call` sends a request of kafka-python and gives the decoded response."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Any, version: int) -> int:
        """Sends without waiting and gives the correlation id."""
        self._correlation += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation, client_id="tests")
        self.socket.sendall(bytes(request.encode(header=True, framed=True)))
        return self._correlation

    def receive(self) -> tuple[int, bytes]:
        """The next answer: its correlation id, and all bytes from there on."""
        (length,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(length)
        return int.from_bytes(data[:4], "big"), data

    def call(self, request: Any, version: int) -> Any:
        sent = self.send(request, version)
        correlation, data = self.receive()
        assert correlation == sent
        return decode(request, version, data)

    def old_call(self, request: Any) -> Any:
        """The same with aiokafka's classes, which have the versions that Kafka has dropped."""
        self._correlation += 1
        data = RequestHeader_v1(request, correlation_id=self._correlation, client_id="tests").encode()
        data += request.encode()
        self.socket.sendall(struct.pack(">i", len(data)) + data)
        correlation, answer = self.receive()
        assert correlation == self._correlation
        stream = io.BytesIO(answer[4:])
        response = request.RESPONSE_TYPE.decode(stream)
        assert stream.read() == b""
        return response

    def is_closed(self) -> bool:
        """Waits for the gateway to close the connection; what it still sends is dropped."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            return True
        return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"closed after {len(data)} of {count} bytes")
            data += piece
        return bytes(data)


def decode(request: Any, version: int, data: bytes) -> Any:
    """kafka-python's decoded response."""
    kind = getattr(sys.modules[type(request).__module__], type(request).__name__.replace("Request", "Response"))
    return kind.decode(data, version=version, header=True)


def batch(*values: bytes) -> bytes:
    """One record batch of magic 2."""
    return bytes(build_batch([(None, value) for value in values]))


def produce_request(topic: str, partition: int, records: bytes, *, acks: int = 1, timeout_ms: int = 5000) -> Any:
    data = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=records)])],
    )


def create(client: Client, partitions: int = 1, prefix: str = "topic") -> str:
    """A new topic with a name of its own."""
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    kind = CreateTopicsRequest.CreatableTopic
    topic = kind(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=False), 4)
    assert response.topics[0].error_code == 0
    return name
