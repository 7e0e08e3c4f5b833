"""What the gateway knows of topics: a cache of the controller's registry, and what keeps the other brokers in step.

The registry is the controller's (broker 0). A broker that is not the controller learns of topics through `SyncTopics`:
all of them whenever its link comes up, single ones after a create or a change, all again after a delete. One lock per
broker keeps an older list from being sent after a newer one.
"""

import asyncio
import logging
from collections.abc import Iterable

from nodes import ops
from nodes.gateway.brokers import CONTROLLER, Brokers
from nodes.gateway.settings import Settings
from nodes.mesh import NO_TRACE, MeshError, NodeInfo, NodeState, OpCode, Trace

log = logging.getLogger(__name__)


class Topics:
    """The cache. `leader` and `name_of` answer from it at once; `learn` and `metadata` ask the controller."""

    def __init__(self, brokers: Brokers, settings: Settings) -> None:
        self._brokers = brokers
        self._settings = settings
        self._by_name: dict[str, ops.Topic] = {}
        self._by_id: dict[bytes, ops.Topic] = {}
        self._locks = {index: asyncio.Lock() for index in brokers.indexes if index != CONTROLLER}
        self._tasks: set[asyncio.Task[None]] = set()
        self.cluster_id: str | None = None

    def leader(self, name: str, topic_id: bytes, partition: int) -> int | None:
        """The broker of a partition, None if it is not known here. A topic is given by its name, or else its id."""
        topic = self._by_name.get(name) if name else self._by_id.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.leaders):
            return None
        return topic.leaders[partition]

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    async def metadata(
        self,
        names: list[str] | None,
        ids: list[bytes] | None,
        *,
        create: bool = False,
        trace: Trace = NO_TRACE,
    ) -> ops.MetadataAnswer:
        """The controller's answer, which the cache and the other brokers then follow. Raises `MeshError`."""
        question = ops.Metadata(names, ids, create)
        timeout = self._settings.answer_time
        answer = await self._brokers.controller_call(
            OpCode.METADATA, question, ops.MetadataAnswer, timeout=timeout, trace=trace
        )
        self.cluster_id = answer.cluster_id
        for item in answer.topics:
            if item.topic is None:
                self.forget(item.name, item.topic_id)
        found = [item.topic for item in answer.topics if item.topic is not None]
        if names is None and ids is None:
            self._keep_only({topic.name for topic in found})
        await self.changed([topic for topic in found if self._by_id.get(topic.topic_id) != topic], trace)
        return answer

    async def learn(self, names: Iterable[str], ids: Iterable[bytes], trace: Trace = NO_TRACE) -> None:
        """Brings the cache up to date for these topics. Raises `MeshError`."""
        wanted_names, wanted_ids = sorted(set(names)), sorted(set(ids))
        if wanted_names:
            await self.metadata(wanted_names, None, trace=trace)
        if wanted_ids:
            await self.metadata(None, wanted_ids, trace=trace)

    def _keep_only(self, names: set[str]) -> None:
        for name in self._by_name.keys() - names:
            self.forget(name, ops.NO_ID)

    def forget(self, name: str, topic_id: bytes) -> None:
        by_name = self._by_name.pop(name, None) if name else None
        by_id = self._by_id.pop(topic_id, None)
        if by_name is not None:
            self._by_id.pop(by_name.topic_id, None)
        if by_id is not None and self._by_name.get(by_id.name) is by_id:
            del self._by_name[by_id.name]

    async def changed(self, topics: list[ops.Topic], trace: Trace = NO_TRACE) -> None:
        """Remembers new and altered topics and tells the other brokers; returns when those that are up know."""
        if not topics:
            return
        for topic in topics:
            old = self._by_name.get(topic.name)
            if old is not None:
                self._by_id.pop(old.topic_id, None)
            self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        await asyncio.gather(*(self._tell(index, topics, trace) for index in self._locks))

    async def deleted(self, trace: Trace = NO_TRACE) -> None:
        """Tells the other brokers which topics are left."""
        await asyncio.gather(*(self._tell(index, None, trace) for index in self._locks))

    def on_state_change(self, node: NodeInfo) -> None:
        """To be called when a broker comes up or goes down."""
        index = self._brokers.index_of(node.node_id)
        if node.state is NodeState.UP and index is not None:
            for behind in self._locks if index == CONTROLLER else [index]:
                self._spawn_catch_up(behind)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _spawn_catch_up(self, index: int) -> None:
        task = asyncio.get_running_loop().create_task(self._catch_up(index))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _catch_up(self, index: int) -> None:
        """Sends all topics until it worked, or until the broker is down: its next coming up starts anew."""
        while self._brokers.states()[str(index)] == NodeState.UP:
            try:
                await self._send(index, None, NO_TRACE)
            except MeshError as error:
                log.info("broker %d could not be told of the topics, trying again: %s", index, error)
                await asyncio.sleep(self._settings.sync_pause)
            else:
                return

    async def _tell(self, index: int, topics: list[ops.Topic] | None, trace: Trace) -> None:
        try:
            await self._send(index, topics, trace)
        except MeshError as error:
            log.warning("broker %d is behind with topics until it answers again: %s", index, error)
            self._spawn_catch_up(index)

    async def _send(self, index: int, topics: list[ops.Topic] | None, trace: Trace) -> None:
        """Sends these topics, or all that the controller has."""
        timeout = self._settings.answer_time
        async with self._locks[index]:
            complete = topics is None
            if topics is None:
                everything = ops.Metadata(None, None, create=False)
                answer = await self._brokers.controller_call(
                    OpCode.METADATA, everything, ops.MetadataAnswer, timeout=timeout, trace=trace
                )
                topics = [item.topic for item in answer.topics if item.topic is not None]
            payload = ops.SyncTopics(topics, complete)
            await self._brokers.tell(index, OpCode.SYNC_TOPICS, payload, timeout=timeout, trace=trace)
