"""Those that are compared: our cluster, Apache Kafka, a cluster that somebody else runs, librdkafka's mock."""

import contextlib
import os
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from rafka_lab.errors import LabError
from rafka_lab.lab import Lab
from rafka_lab.peers import ApacheKafka, MockCluster
from rafka_lab.peers.kafka import accepts

OURS = "rafka"
MOCK = "mock"
KAFKA = "kafka"
_ADMIN_SECONDS = 30.0
# A deleted topic's name is free when the cluster says so; ours says so at once.
_DELETE_SECONDS = 15.0
_LOOK_SECONDS = 0.005
# Our broker frees what deleted topics held at this pace, so that a long run does not fill the disk.
_FREE_SECONDS = 5.0


class Side(ABC):
    """One cluster. `pids` is empty where its processes are not ours to look at."""

    name: str
    # Settings of a topic that is synced before each ack=all, as ours is without any.
    synced: ClassVar[dict[str, str]] = {}
    # Whether it can be stopped, killed and started again with its data.
    restarts = False
    makes_topics = True

    def __init__(self) -> None:
        self.topics: set[str] = set()  # those that were made here and not deleted yet

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @property
    @abstractmethod
    def version(self) -> str: ...

    @property
    def pids(self) -> dict[str, int]:
        return {}

    @property
    def data(self) -> Path | None:
        """Where its log lies, if that is known."""
        return None

    def start(self) -> None:
        raise NotImplementedError(f"{self.name} is not started from here")

    def stop(self) -> None:
        raise NotImplementedError(f"{self.name} is not stopped from here")

    def kill(self) -> None:
        raise NotImplementedError(f"{self.name} is not killed from here")

    def close(self) -> None:
        """Ends what was started for this side, if anything was."""
        return

    def cpu(self) -> dict[str, float]:
        """CPU seconds of each process so far."""
        times = {name: psutil.Process(pid).cpu_times() for name, pid in self.pids.items()}
        return {name: float(used.user + used.system) for name, used in times.items()}

    def memory(self) -> float:
        """Megabytes of all processes; what they share counts once (PSS)."""
        return sum(_pss(pid) for pid in self.pids.values()) / 1e6

    def create_topic(self, topic: str, partitions: int = 1, *, synced: bool = False) -> None:
        """Makes the topic and returns when every partition has its leader."""
        admin = self._admin()  # its answers come as long as it is held
        if self.makes_topics:
            config = self.synced if synced else {}
            try:
                admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(_ADMIN_SECONDS)
                self.topics.add(topic)
            except KafkaException as error:
                raise LabError(f"{self.name} did not make the topic {topic!r}: {error.args[0].str()}") from None
        deadline = time.monotonic() + _ADMIN_SECONDS
        while not _is_led(admin, topic, partitions):
            if time.monotonic() > deadline:
                raise LabError(f"the topic {topic!r} of {self.name} had no leaders after {_ADMIN_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)

    def delete_topic(self, topic: str) -> None:
        if self.makes_topics:
            admin = self._admin()
            admin.delete_topics([topic], operation_timeout=_DELETE_SECONDS)[topic].result(_ADMIN_SECONDS)
            self.topics.discard(topic)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})


class OurSide(Side):
    """Gateway and broker, without tracing unless it is asked for."""

    name = OURS
    restarts = True

    def __init__(self, folder: Path, trace_ratio: float = 0) -> None:
        super().__init__()
        self._lab = Lab(data=folder, trace_ratio=trace_ratio, retention_interval=_FREE_SECONDS)

    @property
    def bootstrap(self) -> str:
        return self._lab.bootstrap

    @property
    def version(self) -> str:
        from importlib.metadata import version

        return f"rafka-lab {version('rafka-lab')}"

    @property
    def pids(self) -> dict[str, int]:
        return {name: node.pid for name, node in self._lab.nodes.items() if node.pid is not None and node.is_alive}

    @property
    def data(self) -> Path:
        return self._lab.data

    @property
    def traces_url(self) -> str:
        return self._lab.traces_url

    def start(self) -> None:
        self._lab.start()

    def stop(self) -> None:
        self._lab.stop()

    def kill(self) -> None:
        for node in self._lab.nodes.values():
            node.kill()
        self._lab.stop()

    def close(self) -> None:
        self._lab.stop()


class KafkaSide(Side):
    """An Apache Kafka of our own."""

    name = KAFKA
    synced: ClassVar[dict[str, str]] = {"flush.messages": "1"}
    restarts = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._kafka = ApacheKafka(folder)
        self._kafka.prepare()

    @property
    def bootstrap(self) -> str:
        return self._kafka.bootstrap

    @property
    def version(self) -> str:
        return self._kafka.version

    @property
    def pids(self) -> dict[str, int]:
        return self._kafka.pids

    @property
    def data(self) -> Path:
        return self._folder

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def close(self) -> None:
        self._kafka.kill()


class ForeignSide(Side):
    """A cluster that runs already, at an address. Its topics are asked to sync, and are deleted at the end."""

    synced: ClassVar[dict[str, str]] = {"flush.messages": "1"}

    def __init__(self, bootstrap: str) -> None:
        if not accepts(bootstrap):
            raise LabError(f"nothing answers at {bootstrap}: start the peer first, or use --peer kafka")
        super().__init__()
        self.name = bootstrap
        self._bootstrap = bootstrap
        self._syncs = True

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    @property
    def version(self) -> str:
        return f"the cluster at {self._bootstrap}{'' if self._syncs else ' (it knows no flush.messages)'}"

    def create_topic(self, topic: str, partitions: int = 1, *, synced: bool = False) -> None:
        try:
            super().create_topic(topic, partitions, synced=synced and self._syncs)
        except LabError:
            if not (synced and self._syncs):
                raise
            self._syncs = False  # not an Apache Kafka; its acks=all is whatever it makes of it
            super().create_topic(topic, partitions)

    def close(self) -> None:
        for topic in list(self.topics):
            self.delete_topic(topic)


class MockSide(Side):
    """librdkafka's mock: the client's upper bound."""

    name = MOCK
    makes_topics = False

    def __init__(self) -> None:
        super().__init__()
        self._mock = MockCluster()
        self._mock.__enter__()

    @property
    def bootstrap(self) -> str:
        return self._mock.bootstrap

    @property
    def version(self) -> str:
        return self._mock.version

    @property
    def pids(self) -> dict[str, int]:
        return self._mock.pids

    def close(self) -> None:
        self._mock.__exit__(None, None, None)


@contextlib.contextmanager
def folder_for(name: str) -> Iterator[Path]:
    """A temporary folder for a benchmark's data; RAFKA_LAB_BENCH_DIR chooses the disk."""
    with tempfile.TemporaryDirectory(prefix=f"rafka-bench-{name}-", dir=os.environ.get("RAFKA_LAB_BENCH_DIR")) as place:
        yield Path(place)


def forget_pages(folder: Path) -> None:
    """Takes a folder's files out of the page cache, so that the next read is from the disk."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def _is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, timeout=_ADMIN_SECONDS).topics[topic]
    led = [number for number, partition in found.partitions.items() if partition.leader >= 0]
    return found.error is None and len(led) >= partitions


def _pss(pid: int) -> int:
    return int(psutil.Process(pid).memory_full_info().pss)
