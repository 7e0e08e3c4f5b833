"""librdkafka's own mock cluster, in memory and in a process of its own: the most that librdkafka's client can do."""

import subprocess
import sys
from types import TracebackType

from rafka_lab.node import process_environment

_STOP_SECONDS = 10.0


class MockCluster:
    """One broker without a disk. It forgets old records and knows no CreateTopics: topics of up to four partitions come
    with their first use, and fetching cannot be compared.
    """

    name = "mock"

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap = ""
        self.pids: dict[str, int] = {}

    @property
    def version(self) -> str:
        from confluent_kafka import libversion

        return f"librdkafka {libversion()[0]} mock cluster"

    def __enter__(self) -> "MockCluster":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rafka_lab.peers.mock_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=process_environment(),
            process_group=0,
            text=True,
        )
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().strip()
        self.pids = {"mock": self._process.pid}
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None and process.stdin is not None and process.stdout is not None:
            process.stdin.close()
            process.wait(_STOP_SECONDS)
            process.stdout.close()
        self.pids = {}
