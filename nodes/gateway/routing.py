"""Spreads the partitions of one request over the brokers that hold them, and puts the results back in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from nodes.gateway.errors import read_failure
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError


class Placed(Protocol):
    """A partition of a request, as in `nodes.ops`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


class Result(Protocol):
    @property
    def error(self) -> int: ...


P = TypeVar("P", bound=Placed)
R = TypeVar("R", bound=Result)
Send = Callable[[int, list[P]], Awaitable[list[R]]]
Fail = Callable[[P, ErrorCode], R]

# What a broker says that does not hold a partition, or holds no such topic: our cache may be old.
STALE = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_id})


def topic_id_of(item: Placed) -> bytes:
    """Ops that name topics only by name have no id."""
    found: bytes = getattr(item, "topic_id", b"")
    return found


def split(exchange: Exchange, items: Sequence[P]) -> tuple[dict[int, list[int]], list[int]]:
    """Positions of the items by broker, and of those whose broker is not known."""
    by_broker: dict[int, list[int]] = {}
    unknown: list[int] = []
    leader = exchange.topics.leader
    for position, item in enumerate(items):
        index = leader(item.topic, topic_id_of(item), item.partition)
        if index is None:
            unknown.append(position)
        else:
            by_broker.setdefault(index, []).append(position)
    return by_broker, unknown


async def learn(exchange: Exchange, items: Sequence[P]) -> MeshError | None:
    """Asks the controller about the items' topics; the error if it cannot be asked."""
    names = [item.topic for item in items if item.topic]
    ids = [topic_id_of(item) for item in items if not item.topic]
    try:
        await exchange.topics.learn(names, ids, exchange.trace)
    except MeshError as error:
        return error
    return None


def unknown_code(item: Placed, error: MeshError | None) -> ErrorCode:
    """Why an item has no broker."""
    if error is not None:
        return read_failure(error, ErrorCode.not_leader_or_follower)
    return ErrorCode.unknown_topic_or_partition if item.topic else ErrorCode.unknown_topic_id


async def scatter(exchange: Exchange, items: Sequence[P], send: Send[P, R], fail: Fail[P, R]) -> list[R]:
    """One result an item. Items that a broker does not know are tried once more after a look at the registry.

    `send` gets a broker and its items and gives as many results; it raises `MeshError` if there is no answer.
    """
    results: dict[int, R] = {}
    asked = await _round(exchange, items, range(len(items)), send, fail, results)
    stale = [position for position in asked if results[position].error in STALE]
    if stale and await learn(exchange, [items[position] for position in stale]) is None:
        await _round(exchange, items, stale, send, fail, results)
    return [results[position] for position in range(len(items))]


async def _round(
    exchange: Exchange,
    items: Sequence[P],
    positions: Sequence[int],
    send: Send[P, R],
    fail: Fail[P, R],
    results: dict[int, R],
) -> list[int]:
    """Fills in results for these positions and tells which of them a broker gave."""
    chosen = [items[position] for position in positions]
    by_broker, unknown = split(exchange, chosen)
    error = None
    if unknown:
        error = await learn(exchange, [chosen[place] for place in unknown])
        by_broker, unknown = split(exchange, chosen)
    for place in unknown:
        results[positions[place]] = fail(chosen[place], unknown_code(chosen[place], error))

    async def one(index: int, places: list[int]) -> None:
        given = await send(index, [chosen[place] for place in places])
        for place, result in zip(places, given, strict=True):
            results[positions[place]] = result

    if len(by_broker) == 1:
        ((index, places),) = by_broker.items()
        await one(index, places)
    else:
        await asyncio.gather(*(one(index, places) for index, places in by_broker.items()))
    return [positions[place] for places in by_broker.values() for place in places]


def checked(results: list[R], items: Sequence[object]) -> list[R]:
    """The results, if there are as many as items; else the broker's answer is of no use."""
    if len(results) != len(items):
        raise MeshError(f"a broker answered {len(results)} results for {len(items)} partitions")
    return results
