"""The broker's settings and limits, each with its reason."""

import msgspec

from nodes.broker.errors import SettingsError
from wal.settings import WalSettings

# A topic's registry entry lists one leader a partition and is written whole at each change.
MAX_PARTITIONS = 10_000
# Producer ids of one broker: the broker's index stands above these bits, so ids of two brokers never meet.
PRODUCER_ID_BITS = 40
MAX_BROKERS = 1 << 16


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a cluster. Times in seconds."""

    index: int = 0
    # How many brokers the cluster has: the controller (index 0) spreads partitions over all of them.
    brokers: int = 1
    default_partitions: int = 1
    auto_create: bool = True
    # Kafka's own default: 1 MiB and the overhead of a batch.
    max_message_bytes: int = 1_048_588
    # Kafka's own default is 5 minutes; a lab shows what retention does while somebody looks.
    retention_interval: float = 30.0
    # The first two parts of a topic's RRL, after the organisation's number.
    environment: str = "lab"
    cluster: str = "rafka"
    # acks=0 records gather in memory; consumers see them after at most this long.
    flush_interval: float = 0.01
    # How often the log is asked whether it still works, so that a failed sync ends the broker well within a second.
    watch_interval: float = 0.25
    # How often free memory is looked at, and how much may stay when fewer bytes than this came and went since.
    memory_interval: float = 1.0
    free_heap_bytes: int = 6 * 1024 * 1024
    # Producer ids are reserved in the log in blocks, so that only every so-many-th request waits for a sync.
    producer_id_block: int = 1000
    # How long a stopping broker waits for calls at work. A sync takes milliseconds; long polls are ended at once.
    stop_grace: float = 2.0
    # The same when the log has failed: nothing at work can succeed any more.
    failed_grace: float = 0.2
    wal: WalSettings = WalSettings()

    def __post_init__(self) -> None:
        if not 1 <= self.brokers <= MAX_BROKERS:
            raise SettingsError(f"brokers is {self.brokers}: a cluster has 1 to {MAX_BROKERS}")
        if not 0 <= self.index < self.brokers:
            raise SettingsError(f"index is {self.index}: brokers are numbered from 0 to {self.brokers - 1}")
        if not 1 <= self.default_partitions <= MAX_PARTITIONS:
            raise SettingsError(f"default-partitions is {self.default_partitions}: choose from 1 to {MAX_PARTITIONS}")
        if self.retention_interval <= 0:
            raise SettingsError(f"retention-interval is {self.retention_interval}: it must be above 0 seconds")

    @property
    def is_controller(self) -> bool:
        return self.index == 0
