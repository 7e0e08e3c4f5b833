"""Producer ids: reserved in the log in blocks, so that none is given out twice, whatever happens to the broker."""

from collections.abc import Awaitable, Callable

from nodes.broker.errors import Code, RefusedError
from nodes.broker.settings import PRODUCER_ID_BITS, BrokerSettings
from wal.log import SingleWal

NEXT_PRODUCER_ID = "producer_id.next"
_LAST_EPOCH = 2**15 - 2  # Kafka keeps the largest i16 for itself


class ProducerIds:
    """The ids of one broker. What is above `PRODUCER_ID_BITS` is the broker's index."""

    def __init__(self, wal: SingleWal, settings: BrokerSettings, synced: Callable[[], Awaitable[None]]) -> None:
        self._wal = wal
        self._settings = settings
        self._synced = synced
        self._first = settings.index << PRODUCER_ID_BITS
        self._next = self._reserved_end()
        self._end = self._next  # ids from here on are not reserved yet

    def _reserved_end(self) -> int:
        return int(self._wal.state.values.get(NEXT_PRODUCER_ID, self._first))

    async def new(self) -> int:
        """An id that was never given out; its block is on the disk before the first of it leaves."""
        while self._next >= self._end:
            end = max(self._reserved_end(), self._next) + self._settings.producer_id_block
            self._wal.set_values({NEXT_PRODUCER_ID: str(end)})
            await self._synced()
            self._end = max(self._end, end)
        self._next += 1
        return self._next - 1

    async def renew(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """The id and epoch with which a producer goes on; an id that is not ours or has no epoch left gets a new one.

        The client counts the epoch, the partitions' producer states (which are in the log) decide which one is in use.
        """
        if not self._first <= producer_id < self._next or epoch >= _LAST_EPOCH:
            return await self.new(), 0
        in_use = max(
            (
                state.producers[producer_id].epoch
                for state in self._wal.state.partitions.values()
                if producer_id in state.producers
            ),
            default=-1,
        )
        if epoch < in_use:
            raise RefusedError(
                Code.INVALID_PRODUCER_EPOCH, f"producer {producer_id} is in use with epoch {in_use}, not {epoch}"
            )
        return producer_id, max(epoch, -1) + 1
