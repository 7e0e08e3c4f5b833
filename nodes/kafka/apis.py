"""The one table of APIs and versions: what it holds is what works, and ApiVersions is answered from it."""

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """Kafka's numbers of the APIs that are served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    CREATE_PARTITIONS = 37
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLUSTER = 60


class Api(NamedTuple):
    """One API: the versions served, and the lowest one that kio knows (those below it are in `legacy`)."""

    key: ApiKey
    lowest: int
    highest: int
    lowest_in_kio: int

    @property
    def schema(self) -> str:
        """The name of the API's folder in kio."""
        return self.key.name.lower()

    def kio_version(self, version: int) -> int:
        """The version whose entities stand for `version`."""
        return max(version, self.lowest_in_kio)


# Produce stays below 13 and Fetch below 17: from there on clients expect more than one node can give.
_ROWS = (
    Api(ApiKey.PRODUCE, 0, 12, 3),
    Api(ApiKey.FETCH, 0, 16, 4),
    Api(ApiKey.LIST_OFFSETS, 0, 9, 1),
    Api(ApiKey.METADATA, 0, 13, 0),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, 0),
    Api(ApiKey.API_VERSIONS, 0, 4, 0),
    Api(ApiKey.CREATE_TOPICS, 0, 7, 2),
    Api(ApiKey.DELETE_TOPICS, 0, 6, 1),
    Api(ApiKey.DELETE_RECORDS, 0, 2, 0),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 0),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, 0, 4, 1),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, 0),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, 0),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
)
APIS: dict[int, Api] = {int(row.key): row for row in _ROWS}
