"""Status: what the lab shows of a broker."""

from nodes import ops
from nodes.broker.broker import Broker


async def status(broker: Broker, _org_id: int, _request: ops.Op) -> ops.BrokerStatus:
    wal, counters = broker.wal, broker.counters
    topics = list(wal.state.topics.values())
    end = wal.end
    return ops.BrokerStatus(
        broker.settings.index,
        len(topics),
        sum(topic.leaders.count(broker.settings.index) for topic in topics),
        sum(segment.end for segment in wal.segments),
        f"{end.segment}:{end.position}",
        counters.produced_records,
        counters.produced_bytes,
        counters.fetched_bytes,
        wal.unsynced_bytes,
    )
