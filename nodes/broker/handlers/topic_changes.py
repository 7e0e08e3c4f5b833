"""What the ops that change topics share: one outcome a topic, and no promise before the sync."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError, kafka_code
from nodes.broker.registry import op_of
from wal.control import TopicRecord
from wal.errors import WalError


class Named(Protocol):
    @property
    def name(self) -> str: ...


W = TypeVar("W", bound=Named)


def check_controller(broker: Broker) -> None:
    """Raises on a broker that only follows."""
    if not broker.settings.is_controller:
        raise RefusedError(
            Code.NOT_CONTROLLER, f"broker {broker.settings.index} does not decide on topics; broker 0 does"
        )


async def change_each(
    broker: Broker, wishes: Sequence[W], change: Callable[[W], TopicRecord], *, validate_only: bool = False
) -> ops.TopicsAnswer:
    """One result a wish, in order. A success is on the disk when this returns."""
    results = [_outcome(broker, wish, change, validate_only) for wish in wishes]
    if not validate_only and any(not result.error for result in results):
        try:
            await broker.syncs.synced()
        except WalError as error:
            results = [
                result if result.error else ops.TopicResult(result.name, error=kafka_code(error), message=str(error))
                for result in results
            ]
    return ops.TopicsAnswer(results)


def _outcome(broker: Broker, wish: W, change: Callable[[W], TopicRecord], validate_only: bool) -> ops.TopicResult:
    try:
        check_controller(broker)
        record = change(wish)
    except RefusedError as error:
        return ops.TopicResult(wish.name, error=error.code, message=error.message)
    except WalError as error:
        return ops.TopicResult(wish.name, error=kafka_code(error), message=str(error))
    topic_id = ops.NO_ID if validate_only else record.topic_id.bytes
    return ops.TopicResult(record.name, topic_id, topic=op_of(record))


def once(wishes: Sequence[Named]) -> Callable[[Named], None]:
    """A check that refuses every wish whose name is there twice, as Kafka does."""
    names = Counter(wish.name for wish in wishes)

    def check(wish: Named) -> None:
        if names[wish.name] > 1:
            raise RefusedError(Code.INVALID_REQUEST, f"topic {wish.name!r} is named twice in one request")

    return check
