"""What a person does with a running cluster: produce, fetch, look at topics, logs and traces, break it, measure it.

`Lab` inherits from it. Everything is imported when it is first used, so that a lab starts in no more time.
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rafka_lab.errors import LabError
from rafka_lab.node import Node

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from confluent_kafka.admin import AdminClient

    from rafka_lab.client import Kafka
    from rafka_lab.experiment import Results
    from rafka_lab.faults import Faults
    from rafka_lab.frames import Frame
    from rafka_lab.mesh_paths import MeshPaths
    from rafka_lab.rates import Rates
    from rafka_lab.traces_view import Traces
    from rafka_lab.wal_frames import WalFrames

# Where a broker's log is within its folder.
_LOG_FOLDER = "data"

P = ParamSpec("P")
R = TypeVar("R")


class LabTools(ABC):
    """Needs what `Lab` has: `is_running`, `bootstrap`, `nodes`, `data`, and `traces_url` where spans are collected."""

    @property
    @abstractmethod
    def is_running(self) -> bool: ...

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @property
    @abstractmethod
    def nodes(self) -> Mapping[str, Node]: ...

    @property
    @abstractmethod
    def data(self) -> Path: ...

    @property
    def traces_url(self) -> str | None:
        """Where spans are collected; None while nothing collects them."""
        return None

    @property
    def why_no_traces(self) -> str:
        """What keeps spans from `traces_url`, in one sentence; empty if nothing is known to."""
        return ""

    @property
    def has_real_jaeger(self) -> bool:
        """Whether `traces_url` is a Jaeger with a page of its own."""
        return False

    @property
    def kafka(self) -> "Kafka":
        """The client that the calls below use."""
        from rafka_lab.client import Kafka

        if self._kafka is None or self._kafka.bootstrap != self.bootstrap:
            self._kafka = Kafka(self.bootstrap, trace_ids=_weakly(self._trace_ids))
        return self._kafka

    _kafka: "Kafka | None" = None
    _mesh_paths: "MeshPaths"

    def produce(
        self, topic: str, rows: "Iterable[object] | pd.DataFrame | str | bytes", **options: Any
    ) -> "pd.DataFrame":
        """Sends rows (text, pairs, dictionaries, a DataFrame) and waits for the acks: see `Kafka.produce`."""
        return self.kafka.produce(topic, rows, **options)

    def fetch(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        offset: str | int | datetime = "beginning",
        count: int | None = None,
        text: bool = True,
    ) -> "pd.DataFrame":
        """The topic's records as a DataFrame with their trace ids: see `Kafka.fetch`."""
        return self.kafka.fetch(topic, partitions=partitions, offset=offset, count=count, text=text)

    def topics(self) -> "pd.DataFrame":
        """One line a topic."""
        return self.kafka.topics()

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Makes a topic; one that is there already is an error."""
        self.kafka.create_topic(topic, partitions, config)

    @property
    def admin(self) -> "AdminClient":
        """confluent-kafka's AdminClient."""
        return self.kafka.admin

    @property
    def wal(self) -> "WalFrames":
        """The brokers' logs as DataFrames."""
        from rafka_lab.wal_frames import WalFrames

        folders = {name: self._log_folder(name) for name, node in self.nodes.items() if node.role == "broker"}
        if not folders:
            raise LabError("the lab has not been started: start() it first")
        if self._wal is None or self._wal.folders != folders:
            self._wal = WalFrames(folders)
        return self._wal

    _wal: "WalFrames | None" = None

    @property
    def traces(self) -> "Traces":
        """The lab's traces."""
        from rafka_lab.traces_view import Traces

        return Traces(self.traces_url, self.why_no_traces)

    @cached_property
    def faults(self) -> "Faults":
        """Kill, pause, slow down, lose packets, damage and fill up."""
        from rafka_lab.faults import Faults

        return Faults(self.nodes, _weakly(self._log_folder), self._mesh_paths)

    @cached_property
    def rates(self) -> "Rates":
        """What each node does per second; asked again, since the last time."""
        from rafka_lab.rates import Rates

        return Rates(self.nodes, _weakly(self._log_folder))

    def jaeger(self) -> "Frame":
        """The trace viewer, or the real Jaeger's own page where the lab has one, inside the notebook."""
        from rafka_lab.frames import jaeger_frame

        # Without a store of its own, what there is to show is the Jaeger that JAEGER_URL names.
        return jaeger_frame(self.traces, real=self.has_real_jaeger or not self.traces_url)

    def experiment(
        self,
        workload: Callable[..., Mapping[str, float]],
        *,
        repeats: int = 3,
        seed: int = 0,
        progress: bool = True,
        **grid: Any,
    ) -> "Results":
        """Runs `workload(lab, **parameters)` for each combination: a list of values is one axis of the grid."""
        from rafka_lab.experiment import run

        return run(workload, self, grid, repeats=repeats, seed=seed, progress=progress)

    def _repr_html_(self) -> str:
        from rafka_lab.display import lab_html

        return lab_html(self)

    def _log_folder(self, node: str) -> Path:
        return self.data / node / _LOG_FOLDER

    def _trace_ids(self, topic: str, frame: "pd.DataFrame") -> "pd.Series | None":
        return self.wal.trace_ids(topic, frame)


def _weakly(method: Callable[P, R]) -> Callable[P, R]:
    """The method without its lab: what a lab holds must not hold the lab, or it would not end with its variable."""
    reference = weakref.WeakMethod(method)

    def call(*arguments: P.args, **named: P.kwargs) -> R:
        found = reference()
        if found is None:
            raise LabError("the lab is gone: start a new one")
        return found(*arguments, **named)

    return call
