"""A ledger of what a producer was promised while nodes die: kept outside of the cluster, compared with the log after.

Each record's value is its number, so a record that is lost, doubled or made up is found by name.
"""

import threading
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from rafka_lab.errors import LabError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from confluent_kafka import Message

    from rafka_lab.tools import LabTools

_POLL_SECONDS = 0.01
# A record that is not acknowledged by then counts as failed; a restart takes about a second.
_DELIVERY_MS = 20_000
_FLUSH_SECONDS = 30.0


class Verdict(NamedTuple):
    """What became of the records. Lost ones were acknowledged and are not there."""

    acks: str
    sent: int
    acked: int
    failed: int
    stored: int
    lost: int
    duplicates: int
    unasked: int


class Ledger:
    """Produces numbered records in a thread: `with Ledger(lab, "t") as ledger: lab.faults.kill()`."""

    def __init__(self, lab: "LabTools", topic: str, *, acks: str | int = "all", rate: float = 2000) -> None:
        self._lab = lab
        self._topic = topic
        self._acks = str(acks)
        self._rate = rate
        self._acked: list[tuple[float, int]] = []
        self._failed = 0
        self._sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._trouble: BaseException | None = None

    def __enter__(self) -> "Ledger":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def acked(self) -> int:
        """How many records were acknowledged so far."""
        return len(self._acked)

    def wait_acked(self, count: int, timeout: float = _FLUSH_SECONDS) -> None:
        """Returns when so many more records were acknowledged."""
        goal, deadline = self.acked + count, time.monotonic() + timeout
        while self.acked < goal:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise LabError(f"{self.acked - goal + count} of {count} records were acknowledged in {timeout:g} s")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Sends what is left and waits until each record has its answer."""
        self._stop.set()
        self._thread.join()
        if self._trouble is not None:
            raise self._trouble

    def check(self) -> Verdict:
        """Compares the promises with what the topic holds now."""
        stored = Counter(int(value) for value in self._lab.fetch(self._topic)["value"])
        acked = {number for _, number in self._acked}
        return Verdict(
            acks=self._acks,
            sent=self._sent,
            acked=len(acked),
            failed=self._failed,
            stored=len(stored),
            lost=len(acked - set(stored)),
            duplicates=sum(count - 1 for count in stored.values()),
            unasked=len(set(stored) - set(range(self._sent))),
        )

    def timeline(self, step: float = 0.1) -> "pd.DataFrame":
        """Acknowledged records a second, in steps of `step` seconds."""
        import numpy as np
        import pandas as pd

        moments = np.array([moment for moment, _ in self._acked])
        if not len(moments):
            return pd.DataFrame({"time": pd.to_datetime([], utc=True), "records_per_s": []})
        edges = np.arange(moments.min(), moments.max() + 2 * step, step)
        counts, _ = np.histogram(moments, edges)
        return pd.DataFrame({"time": pd.to_datetime(edges[:-1], unit="s", utc=True), "records_per_s": counts / step})

    def _run(self) -> None:
        try:
            self._produce()
        except BaseException as error:  # noqa: BLE001 - handed to whoever calls stop()
            self._trouble = error

    def _produce(self) -> None:
        from confluent_kafka import Producer

        settings = {"acks": self._acks, "linger.ms": "2", "message.timeout.ms": str(_DELIVERY_MS)}
        settings |= {"enable.idempotence": str(self._acks == "all").lower(), "reconnect.backoff.max.ms": "200"}
        producer = Producer(self._lab.kafka.config(settings))
        begun = time.perf_counter()
        while not self._stop.is_set():
            due = int((time.perf_counter() - begun) * self._rate)
            while self._sent < due:
                producer.produce(self._topic, b"%d" % self._sent, on_delivery=self._delivered)
                self._sent += 1
            producer.poll(_POLL_SECONDS)
        producer.flush(_FLUSH_SECONDS)

    def _delivered(self, error: Any, message: "Message") -> None:
        if error is not None:
            self._failed += 1
        else:
            self._acked.append((time.time(), int(message.value() or b"-1")))


def kill_under_load(
    lab: "LabTools",
    topic: str,
    *,
    acks: str | int = "all",
    rate: float = 2000,
    records: int = 1000,
    node: str = "broker-0",
) -> Verdict:
    """kill -9 of a node under load, a restart, some more load, and then the count of what is there."""
    ledger = Ledger(lab, topic, acks=acks, rate=rate)
    with ledger:
        ledger.wait_acked(records)
        lab.faults.kill(node)
        lab.faults.restart(node)
        ledger.wait_acked(records)
    return ledger.check()
