"""A real broker process, and a mesh node in this process that calls it as a gateway does."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.handlers import register
from nodes.broker.settings import BrokerSettings
from nodes.mesh import Mesh, OpCode, tune_interpreter
from nodes.mesh.postcard import codec
from wal.disk import Disk
from wal.log import SingleWal
from wal.records import NewRecord, build_batch

ROOT = Path(__file__).parents[3]
ORG = 1
A = TypeVar("A")
BATCH = build_batch([NewRecord(b"k", b"v", 1000)])


class BrokerProcess:
    """`python -m nodes.broker`, or the same on a disk that fails (see `failing_disk.py`)."""

    def __init__(self, folder: Path, gateway_id: str, *flags: str, disk: str = "") -> None:
        program = [str(Path(__file__).with_name("failing_disk.py")), disk] if disk else ["-m", "nodes.broker"]
        self.log = folder.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, *program, "--name", "broker-0", "--data", str(folder)),
                    *("--allow", gateway_id, "--control-pipe", *flags),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        said = json.loads(line)
        self.node_id: str = said["node_id"]
        self.addresses: list[str] = said["mesh"]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return code


class Caller:
    """Typed calls to one broker."""

    def __init__(self, mesh: Mesh, node_id: str, process: BrokerProcess | None = None) -> None:
        self.mesh = mesh
        self.node_id = node_id
        self._process = process

    @property
    def process(self) -> BrokerProcess:
        assert self._process is not None
        return self._process

    async def ask(self, op: OpCode, payload: ops.Op, answer: type[A], *, org: int = ORG, **options: Any) -> A:
        data = codec(type(payload)).parts(payload)
        return codec(answer).decode(await self.mesh.kafka_op_call(self.node_id, op, org, data, **options))

    async def create(self, name: str, partitions: int = 1, **configs: str) -> ops.Topic:
        wish = ops.NewTopic(name, partitions, 1, [], dict(configs))
        answer = await self.ask(OpCode.CREATE_TOPICS, ops.CreateTopics([wish], False), ops.TopicsAnswer)
        (result,) = answer.results
        assert result.error == 0, result.message
        assert result.topic is not None
        return result.topic

    async def produce(
        self,
        topic: str,
        records: bytes = BATCH,
        *,
        acks: int = -1,
        partition: int = 0,
        version: int = 9,
        **options: Any,
    ) -> ops.ProduceResult:
        item = ops.ProducePartition(topic, ops.NO_ID, partition, records)
        payload = ops.Produce(version, acks, 10_000, [item])
        return (await self.ask(OpCode.PRODUCE, payload, ops.ProduceAnswer, **options)).results[0]

    async def fetch(
        self,
        topic: str,
        offset: int = 0,
        *,
        wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        version: int = 12,
    ) -> ops.FetchResult:
        item = ops.FetchPartition(topic, ops.NO_ID, 0, offset, max_bytes)
        payload = ops.Fetch(version, wait_ms, min_bytes, max_bytes, [item])
        return (await self.ask(OpCode.FETCH, payload, ops.FetchAnswer)).results[0]

    async def end_offset(self, topic: str, partition: int = 0) -> int:
        item = ops.ListOffsetsPartition(topic, ops.NO_ID, partition, -1)
        answer = await self.ask(OpCode.LIST_OFFSETS, ops.ListOffsets([item]), ops.ListOffsetsAnswer)
        assert answer.results[0].error == 0
        return answer.results[0].offset


@asynccontextmanager
async def broker(folder: Path, *flags: str, disk: str = "") -> AsyncIterator[Caller]:
    """A broker process with its caller; ended in good order."""
    mesh = Mesh(folder / "gateway", role="gateway")
    process = BrokerProcess(folder / "broker-0", mesh.node_id, *flags, disk=disk)
    try:
        await mesh.start()
        mesh.add_peer(process.node_id, process.addresses)
        await mesh.wait_up(process.node_id, 20)
        yield Caller(mesh, process.node_id, process)
    finally:
        await mesh.close()
        process.end()


@asynccontextmanager
async def local_broker(
    folder: Path, settings: BrokerSettings | None = None, disk: Disk | None = None
) -> AsyncIterator[tuple[Caller, Broker]]:
    """A broker in this process, so that a test can look into it; still called over a real mesh."""
    chosen = settings or BrokerSettings()
    wal = SingleWal.open(folder / "broker-0" / "data", chosen.wal, disk)
    served = Broker(wal, chosen)
    ours, theirs = Mesh(folder / "gateway", role="gateway"), Mesh(folder / "broker-0", role="broker")
    theirs.allow(ours.node_id)
    register(theirs, served)
    try:
        await theirs.start()
        await ours.start()
        served.start()
        ours.add_peer(theirs.node_id, theirs.addresses)
        await ours.wait_up(theirs.node_id, 20)
        yield Caller(ours, theirs.node_id), served
    finally:
        await served.settle()
        await ours.close()
        await theirs.close()
        served.close()


def run(body: Coroutine[Any, Any, None]) -> None:
    tune_interpreter()
    asyncio.run(body)
