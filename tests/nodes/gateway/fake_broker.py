"""A broker in a process of its own that keeps everything in memory: `fake_broker.py INDEX FOLDER GATEWAY_ID...`.

It serves the ops of `nodes.ops` as far as the gateway's tests need them, and stands in for the real one only there.
Prints one JSON line with NodeId and addresses when it listens. Topics whose name says so misbehave: `slow-...` answers
produces after half a second, `stuck-...` never, `broken-...` fails, `strange-...` gives an error Kafka does not have.
"""

import asyncio
import json
import re
import struct
import sys
import uuid
from pathlib import Path
from typing import Any

from nodes import ops
from nodes.mesh import KafkaCall, Mesh, OpCode, quic, run_node, stop_event
from nodes.mesh.postcard import codec

DEFAULT_PARTITIONS = 3
MESH_CONNECTION = "a mesh connection was made"
UNKNOWN_TOPIC, NOT_LEADER, OUT_OF_RANGE, INVALID_TOPIC, EXISTS, BAD_PARTITIONS = 3, 6, 1, 17, 36, 37
UNKNOWN_ID = 100
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Partition:
    def __init__(self) -> None:
        self.batches: list[tuple[int, int, Any]] = []  # base offset, next offset, bytes
        self.start = 0
        self.end = 0

    def append(self, records: memoryview) -> int:
        base = self.end
        data = bytearray(records)
        count = 1
        if len(data) >= 61 and data[16] == 2:
            struct.pack_into(">q", data, 0, base)
            count = struct.unpack_from(">i", data, 23)[0] + 1
        self.end += count
        self.batches.append((base, self.end, data))
        return base

    def read(self, offset: int, limit: int) -> list[Any]:
        """Batches from the one that holds the offset on; at least one if there is any."""
        found: list[Any] = []
        low, high = 0, len(self.batches)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.batches[middle][1] <= offset else (low, middle)
        for _, _, data in self.batches[low:]:
            if found and limit < len(data):
                break
            found.append(data)
            limit -= len(data)
        return found


class Broker:
    def __init__(self, index: int, brokers: int) -> None:
        self.index = index
        self.brokers = brokers
        self.topics: dict[str, ops.Topic] = {}
        self.partitions: dict[tuple[bytes, int], Partition] = {}
        self.appended = asyncio.Condition()
        self.calls: list[str] = []
        self.next_producer = 1000

    def find(self, name: str, topic_id: bytes) -> ops.Topic | None:
        if name:
            return self.topics.get(name)
        return next((topic for topic in self.topics.values() if topic.topic_id == bytes(topic_id)), None)

    def partition(self, name: str, topic_id: bytes, number: int) -> Partition | int:
        topic = self.find(name, topic_id)
        if topic is None:
            return UNKNOWN_TOPIC if name else UNKNOWN_ID
        if not 0 <= number < len(topic.leaders):
            return UNKNOWN_TOPIC
        if topic.leaders[number] != self.index:
            return NOT_LEADER
        return self.partitions.setdefault((topic.topic_id, number), Partition())

    async def produce(self, op: ops.Produce) -> ops.ProduceAnswer:
        results = []
        for item in op.partitions:
            self.calls.append(f"produce {item.topic}/{item.partition} {len(item.records)}")
            partition = self.partition(item.topic, item.topic_id, item.partition)
            if isinstance(partition, int):
                results.append(ops.ProduceResult(partition))
                continue
            if item.topic.startswith("broken-"):
                raise ValueError("on purpose")
            if item.topic.startswith("strange-"):
                results.append(ops.ProduceResult(9999))
                continue
            assert isinstance(item.records, memoryview)
            results.append(ops.ProduceResult(0, partition.append(item.records), -1, partition.start))
        if any(item.topic.startswith("stuck-") for item in op.partitions):
            await asyncio.sleep(3600)
        if any(item.topic.startswith("slow-") for item in op.partitions):
            await asyncio.sleep(0.5)
        async with self.appended:
            self.appended.notify_all()
        return ops.ProduceAnswer(results)

    def look(self, op: ops.Fetch) -> list[ops.FetchResult]:
        results = []
        left = op.max_bytes
        for item in op.partitions:
            partition = self.partition(item.topic, item.topic_id, item.partition)
            if isinstance(partition, int):
                results.append(ops.FetchResult(partition))
            elif not partition.start <= item.offset <= partition.end:
                results.append(ops.FetchResult(OUT_OF_RANGE, partition.end, partition.start))
            else:
                limit = min(item.max_bytes, left)
                records: list[Any] = partition.read(item.offset, limit) if left == op.max_bytes or left > 0 else []
                left -= sum(map(len, records))
                results.append(ops.FetchResult(0, partition.end, partition.start, records))
        return results

    async def fetch(self, op: ops.Fetch) -> ops.FetchAnswer:
        self.calls.append(f"fetch {op.max_wait_ms}")
        deadline = asyncio.get_running_loop().time() + op.max_wait_ms / 1000
        while True:
            results = self.look(op)
            size = sum(sum(map(len, result.records)) for result in results)  # type: ignore[arg-type]
            left = deadline - asyncio.get_running_loop().time()
            if size >= op.min_bytes or left <= 0 or any(result.error for result in results):
                return ops.FetchAnswer(results)
            try:
                async with asyncio.timeout(left), self.appended:
                    await self.appended.wait()
            except TimeoutError:
                continue

    async def list_offsets(self, op: ops.ListOffsets) -> ops.ListOffsetsAnswer:
        results = []
        for item in op.partitions:
            partition = self.partition(item.topic, item.topic_id, item.partition)
            if isinstance(partition, int):
                results.append(ops.ListOffsetsResult(partition))
            else:
                offset = partition.start if item.timestamp == -2 else partition.end if item.timestamp == -1 else -1
                results.append(ops.ListOffsetsResult(0, -1, offset, 0))
        return ops.ListOffsetsAnswer(results)

    async def epoch_ends(self, op: ops.EpochEnds) -> ops.EpochAnswer:
        results = []
        for item in op.partitions:
            partition = self.partition(item.topic, b"", item.partition)
            if isinstance(partition, int):
                results.append(ops.EpochResult(partition))
            else:
                results.append(ops.EpochResult(0, 0, partition.end))
        return ops.EpochAnswer(results)

    async def delete_records(self, op: ops.DeleteRecords) -> ops.DeleteRecordsAnswer:
        results = []
        for item in op.partitions:
            partition = self.partition(item.topic, b"", item.partition)
            if isinstance(partition, int):
                results.append(ops.DeleteRecordsResult(partition))
            else:
                partition.start = partition.end if item.offset == -1 else item.offset
                results.append(ops.DeleteRecordsResult(0, partition.start))
        return ops.DeleteRecordsAnswer(results)

    def make(self, name: str, partitions: int, configs: dict[str, str]) -> ops.Topic:
        leaders = [number % self.brokers for number in range(partitions)]
        topic_id = uuid.uuid4().bytes
        topic = ops.Topic(name, topic_id, 1, "top_x", name, f"1/lab/rafka/topics/{name}", leaders, configs)
        self.topics[name] = topic
        return topic

    async def metadata(self, op: ops.Metadata) -> ops.MetadataAnswer:
        self.calls.append("metadata")
        answers = []
        if op.names is None and op.ids is None:
            answers = [ops.MetadataTopic(0, topic.name, topic.topic_id, topic) for topic in self.topics.values()]
        for name in op.names or []:
            topic = self.topics.get(name)
            bad = LEGAL_NAME.fullmatch(name) is None
            if topic is None and op.create and not bad:
                topic = self.make(name, DEFAULT_PARTITIONS, {})
            error = 0 if topic else INVALID_TOPIC if bad else UNKNOWN_TOPIC
            answers.append(ops.MetadataTopic(error, name, topic.topic_id if topic else ops.NO_ID, topic))
        for topic_id in op.ids or []:
            topic = self.find("", topic_id)
            answers.append(ops.MetadataTopic(0 if topic else UNKNOWN_ID, topic.name if topic else "", topic_id, topic))
        return ops.MetadataAnswer("fake-cluster", answers)

    async def create_topics(self, op: ops.CreateTopics) -> ops.TopicsAnswer:
        results = []
        for new in op.topics:
            count = DEFAULT_PARTITIONS if new.partitions == -1 else new.partitions
            if new.name in self.topics:
                results.append(ops.TopicResult(new.name, error=EXISTS, message=f"{new.name} exists"))
            elif LEGAL_NAME.fullmatch(new.name) is None:
                results.append(ops.TopicResult(new.name, error=INVALID_TOPIC, message="not a name"))
            elif not 1 <= count <= 1000:
                results.append(ops.TopicResult(new.name, error=BAD_PARTITIONS, message="too few"))
            else:
                topic = self.make(new.name, count, {name: value or "" for name, value in new.configs.items()})
                results.append(ops.TopicResult(new.name, topic.topic_id, topic=topic))
                if op.validate_only:
                    del self.topics[new.name]
        return ops.TopicsAnswer(results)

    async def delete_topics(self, op: ops.DeleteTopics) -> ops.TopicsAnswer:
        results = []
        for ref in op.topics:
            topic = self.find(ref.name, ref.topic_id)
            if topic is None:
                results.append(ops.TopicResult(ref.name, error=UNKNOWN_TOPIC if ref.name else UNKNOWN_ID))
            else:
                del self.topics[topic.name]
                results.append(ops.TopicResult(topic.name, topic.topic_id))
        return ops.TopicsAnswer(results)

    async def create_partitions(self, op: ops.CreatePartitions) -> ops.TopicsAnswer:
        results = []
        for more in op.topics:
            topic = self.topics.get(more.name)
            if topic is None:
                results.append(ops.TopicResult(more.name, error=UNKNOWN_TOPIC))
            elif more.count <= len(topic.leaders):
                results.append(ops.TopicResult(more.name, error=BAD_PARTITIONS, message="not more than now"))
            else:
                leaders = [number % self.brokers for number in range(more.count)]
                topic = ops.Topic(
                    topic.name, topic.topic_id, 1, topic.ulid, topic.slug, topic.rrl, leaders, topic.configs
                )
                self.topics[more.name] = topic
                results.append(ops.TopicResult(more.name, topic.topic_id, topic=topic))
        return ops.TopicsAnswer(results)

    async def sync_topics(self, op: ops.SyncTopics) -> ops.TopicsAnswer:
        self.calls.append(f"sync {len(op.topics)} {op.complete}")
        if op.complete:
            self.topics.clear()
        self.topics.update({topic.name: topic for topic in op.topics})
        return ops.TopicsAnswer([])

    async def describe_configs(self, op: ops.DescribeConfigs) -> ops.DescribeConfigsAnswer:
        entry = ops.ConfigEntry("retention.ms", "604800000", 5, 5, False, "How long records are kept.")
        return ops.DescribeConfigsAnswer(
            [ops.ConfigResult(item.kind, item.name, entries=[entry]) for item in op.resources]
        )

    async def alter_configs(self, op: ops.AlterConfigs) -> ops.AlterConfigsAnswer:
        return ops.AlterConfigsAnswer([ops.ConfigResult(item.kind, item.name) for item in op.resources], [])

    async def init_producer_id(self, op: ops.InitProducerId) -> ops.InitProducerIdAnswer:
        self.next_producer += 1
        return ops.InitProducerIdAnswer(0, self.next_producer, 0)


def serve(mesh: Mesh, broker: Broker) -> None:
    handlers: dict[OpCode, tuple[type, Any]] = {
        OpCode.PRODUCE: (ops.Produce, broker.produce),
        OpCode.FETCH: (ops.Fetch, broker.fetch),
        OpCode.LIST_OFFSETS: (ops.ListOffsets, broker.list_offsets),
        OpCode.DELETE_TOPIC: (ops.DeleteTopics, broker.delete_topics),
        OpCode.METADATA: (ops.Metadata, broker.metadata),
        OpCode.CREATE_TOPICS: (ops.CreateTopics, broker.create_topics),
        OpCode.CREATE_PARTITIONS: (ops.CreatePartitions, broker.create_partitions),
        OpCode.SYNC_TOPICS: (ops.SyncTopics, broker.sync_topics),
        OpCode.DESCRIBE_CONFIGS: (ops.DescribeConfigs, broker.describe_configs),
        OpCode.ALTER_CONFIGS: (ops.AlterConfigs, broker.alter_configs),
        OpCode.INIT_PRODUCER_ID: (ops.InitProducerId, broker.init_producer_id),
        OpCode.EPOCH_ENDS: (ops.EpochEnds, broker.epoch_ends),
        OpCode.DELETE_RECORDS: (ops.DeleteRecords, broker.delete_records),
    }

    def handler(kind: type, method: Any) -> Any:
        async def handle(call: KafkaCall) -> Any:
            answer = await method(codec(kind).decode(call.payload))
            return codec(type(answer)).parts(answer)

        return handle

    for op_code, (kind, method) in handlers.items():
        mesh.register_kafka_handler(op_code, handler(kind, method))

    async def status(_call: KafkaCall) -> bytes:
        return json.dumps(broker.calls).encode()

    mesh.register_kafka_handler(OpCode.STATUS, status)


async def main() -> None:
    index, brokers, folder, *allowed = sys.argv[1:]
    mesh = Mesh(Path(folder), role="broker", allow=allowed)
    serve(mesh, Broker(int(index), int(brokers)))
    stop = stop_event()
    await mesh.start()
    sys.stdout.write(json.dumps({"node_id": mesh.node_id, "addresses": mesh.addresses}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await mesh.close()


def say_connections() -> None:
    """A line on stderr for every mesh connection that was made to this broker, so that tests can count them."""
    complete = quic.Handshake.complete

    async def said(handshake: quic.Handshake) -> quic.Connection:
        connection = await complete(handshake)
        sys.stderr.write(f"{MESH_CONNECTION}\n")
        sys.stderr.flush()
        return connection

    quic.Handshake.complete = said  # type: ignore[method-assign]


if __name__ == "__main__":
    say_connections()
    run_node(main())
