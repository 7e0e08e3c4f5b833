"""`Lab`: a cluster of one gateway and some brokers, as subprocesses that live as long as this process wants them to."""

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType

from rafka_lab.errors import LabError
from rafka_lab.folder import DataFolder, wait_port_free, wait_unlocked
from rafka_lab.frames import traces_page
from rafka_lab.mesh_paths import MeshPaths
from rafka_lab.node import Node, State, crash_report, process_environment
from rafka_lab.plan import AUTO, COLLECTOR, GATEWAY, JAEGER, Plan
from rafka_lab.registry import Entry
from rafka_lab.tools import LabTools

MAX_BROKERS = 64  # each is a process; a laptop has had enough long before
_HIGHEST_PORT = 65535
# Where a broker's log is within its folder, and what it locks there.
_WAL_LOCK = Path("data") / "lock"

_running: "weakref.WeakSet[Lab]" = weakref.WeakSet()
_starting = threading.RLock()


class Lab(LabTools):
    """A cluster. `with Lab() as lab:`, or `start()` and `stop()`; clients connect to `lab.bootstrap`.

    `data=None` is a temporary folder that goes with `stop()`; `port=0` is a free port, kept until `stop()`.
    `advertise` is the host:port that clients are told, where it is not the one that the gateway listens on.
    `trace_ratio` is the share of requests that leave a trace; with 0 there is no collector.
    `environment` is for the nodes, on top of this process's own. The standard `OTEL_*` variables win over what a lab
    tells its nodes; where they keep spans from it, it says so when it starts, and an empty value takes one back.
    `jaeger="auto"` keeps traces in a real Jaeger instead: the one that JAEGER_URL names, or a program on PATH that is
    started as one more node; where there is neither, in the collector as always. A URL is a Jaeger that runs already.
    Between nodes of one machine record batches lie in shared memory, and only the rest of each op crosses the mesh;
    `shared_bodies=False` sends all of it over QUIC, as between machines.
    """

    def __init__(
        self,
        brokers: int = 1,
        data: Path | str | None = None,
        port: int = 0,
        *,
        advertise: str | None = None,
        trace_ratio: float = 1.0,
        jaeger: str | None = None,
        shared_bodies: bool = True,
        default_partitions: int = 1,
        segment_bytes: int | None = None,
        retention_interval: float | None = None,
        environment: Mapping[str, str] | None = None,
        on_crash: Callable[[Node], None] | None = None,
    ) -> None:
        if not 1 <= brokers <= MAX_BROKERS:
            raise LabError(f"a lab has 1 to {MAX_BROKERS} brokers, not {brokers}")
        if not 0 <= port <= _HIGHEST_PORT:
            raise LabError(f"port {port} is not one: choose from 1 to {_HIGHEST_PORT}, or 0 for a free one")
        if not 0 <= trace_ratio <= 1:
            raise LabError(f"trace_ratio is a share from 0 (off) to 1 (every request), not {trace_ratio}")
        if jaeger is not None and jaeger != AUTO and not jaeger.startswith(("http://", "https://")):
            raise LabError(f'jaeger is {jaeger!r}; use "auto", a URL such as http://127.0.0.1:16686, or None')
        self._port = port
        self._folder = DataFolder(data)
        options = {
            "--default-partitions": default_partitions,
            "--segment-bytes": segment_bytes,
            "--retention-interval": retention_interval,
        }
        given = {flag: str(value) for flag, value in options.items() if value is not None}
        self._plan = Plan(self._folder, brokers, port, advertise, given, trace_ratio, jaeger, shared_bodies)
        self._environment = dict(environment or {})
        self._why_no_traces = ""
        self._report_crash = on_crash or _show_crash
        self._nodes: dict[str, Node] = {}
        self._mesh_paths = MeshPaths(self._nodes, self._plan)
        self.crashes: list[str] = []
        self._finalizer: weakref.finalize | None = None  # type: ignore[type-arg]

    def __enter__(self) -> "Lab":
        return self.start()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        if not self.is_running:
            return "<Lab: stopped>"
        return f"<Lab at {self.bootstrap}: {', '.join(f'{node.name} {node.state}' for node in self._nodes.values())}>"

    @property
    def is_running(self) -> bool:
        return self._finalizer is not None

    @property
    def bootstrap(self) -> str:
        """host:port for Kafka clients."""
        if not self.is_running:
            raise LabError("the lab is not running: start() it first")
        return self._plan.listen

    @property
    def traces_url(self) -> str:
        """The trace store: Jaeger's query API, and its viewer in a browser. Empty if the lab runs without tracing."""
        if not self.is_running:
            raise LabError("the lab is not running: start() it first")
        return self._plan.traces_url

    @property
    def why_no_traces(self) -> str:
        """Why `traces` stays empty although there is a store for them: a variable of this environment wants it so."""
        return self._why_no_traces

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The processes by name: `gateway`, `broker-0`, `broker-1` and so on, `collector` (or `jaeger`) for spans."""
        return MappingProxyType(self._nodes)

    @property
    def data(self) -> Path:
        """The data folder; each node has its own in it, and `logs/` holds their logs."""
        if self._folder.path is None:
            raise LabError("the lab has no data folder yet: start() it first")
        return self._folder.path

    def start(self) -> "Lab":
        """Starts all nodes and returns when they serve. A lab that runs already is left alone."""
        with _starting:
            if self.is_running:
                return self
            self._replace_predecessor()
            self._folder.open(len(self._plan.brokers))
            try:
                self._prepare()
                self._launch()
            except BaseException:
                _end(self._nodes, self._mesh_paths, self._folder)
                raise
            entry = Entry(self._about())
            self._finalizer = weakref.finalize(self, _end, self._nodes, self._mesh_paths, self._folder, entry)
            _running.add(self)
        if self._why_no_traces:
            _say(f"rafka-lab: warning: {self._why_no_traces}\n")
        return self

    def stop(self) -> None:
        """Stops all nodes in good order. A lab that is stopped is left alone."""
        if self._finalizer is not None:
            _running.discard(self)
            self._finalizer()
            self._finalizer = None

    def describe(self) -> dict[str, object]:
        """What `rafka-lab up --json` prints."""
        return {
            "bootstrap": self.bootstrap,
            "data": str(self.data),
            "traces": self.traces_url or None,
            "nodes": [node.describe() for node in self._nodes.values() if node.role != COLLECTOR],
        }

    @property
    def has_real_jaeger(self) -> bool:
        """Whether `traces_url` is a Jaeger, with its own page, and not the lab's collector."""
        return bool(self._plan.traces_url) and self._plan.trace_store != COLLECTOR

    def _about(self) -> dict[str, object]:
        """For the registry. Jupyter tells a kernel which notebook it runs for."""
        return {
            "bootstrap": self._plan.listen,
            "traces": self._plan.traces_url,
            "page": traces_page(self._plan.traces_url, real=self.has_real_jaeger) if self._plan.traces_url else "",
            "jaeger": self.has_real_jaeger,
            "notebook": Path(os.environ.get("JPY_SESSION_NAME", "")).name,
        }

    def _replace_predecessor(self) -> None:
        """A notebook cell that is run again makes a new lab for a folder or port that its last run still holds."""
        for other in list(_running):
            same_folder = not self._folder.is_temporary and other._folder.path == self._folder.path
            if same_folder or (self._port and other._plan.listen.endswith(f":{self._port}")):
                other.stop()

    def _prepare(self) -> None:
        plan = self._plan
        plan.prepare()
        self._why_no_traces = plan.why_no_traces(process_environment(self._environment))
        self._nodes.clear()
        for index, name in enumerate(plan.brokers):
            self._nodes[name] = self._node(name, "broker", "nodes.broker", functools.partial(plan.broker_flags, index))
        self._nodes[GATEWAY] = self._node(GATEWAY, "gateway", "nodes.gateway", plan.gateway_flags)
        if plan.trace_store == COLLECTOR:
            self._nodes[COLLECTOR] = self._node(COLLECTOR, COLLECTOR, "traces", plan.collector_flags)
        elif plan.trace_store == JAEGER:
            self._nodes[JAEGER] = self._node(JAEGER, COLLECTOR, "traces.jaeger_node", plan.jaeger_flags)

    def _node(self, name: str, role: str, module: str, flags: Callable[[], list[str]]) -> Node:
        me = weakref.ref(self)  # a lab that nobody holds any more must end, so its nodes do not hold it

        def crashed(node: Node) -> None:
            lab = me()
            if lab is not None:
                lab._on_crash(node)

        def started(node: Node) -> None:
            lab = me()
            if lab is not None:
                lab._on_started(node)

        return Node(
            name,
            role,
            module=module,
            arguments=flags,
            log=self._folder.log(name),
            environment=self._environment,
            on_crash=crashed,
            on_started=started,
        )

    # Starting them

    def _launch(self) -> None:
        for name in self._plan.brokers:
            wait_unlocked(self._folder.node(name) / _WAL_LOCK)
        wait_port_free(self._port)
        for node in self._nodes.values():
            node.launch()
        for name in self._plan.brokers:
            self._nodes[name].wait_ready()
        gateway = self._nodes[GATEWAY]
        if self._learn_addresses():  # a broker found its ports taken
            gateway.kill()
            gateway.launch()
        gateway.wait_ready()
        if self._plan.trace_store:
            self._nodes[self._plan.trace_store].wait_ready()
        self._plan.listen = str(gateway.ready["listen"])

    def _learn_addresses(self) -> bool:
        """Takes the brokers' addresses from their ready lines; whether the gateway was told others."""
        told = {name: set(addresses) for name, addresses in self._plan.addresses.items()}
        for name in told:
            self._plan.addresses[name] = self._nodes[name].mesh or self._plan.addresses[name]
        return any(set(self._plan.addresses[name]) != told[name] for name in told)

    def _on_started(self, node: Node) -> None:
        """A broker that came back on other ports is found only by a gateway that is told so."""
        gateway = self._nodes[GATEWAY]
        if node.role != "broker" or not self._learn_addresses():
            return
        self._mesh_paths.refresh()
        if gateway.state is State.RUNNING:
            gateway.stop().start()

    def _on_crash(self, node: Node) -> None:
        report = crash_report(node)
        self.crashes.append(report)
        self._report_crash(node)


def _show_crash(node: Node) -> None:
    _say(crash_report(node))


def _say(text: str) -> None:
    """On stderr, which a notebook shows in colour below the cell; Python's warnings are said once and then no more."""
    sys.stderr.write(text)
    sys.stderr.flush()


def _end(nodes: dict[str, Node], paths: MeshPaths, folder: DataFolder, entry: Entry | None = None) -> None:
    """The gateway first, so that requests at work still find their brokers; then all brokers at once; spans last."""
    if entry is not None:
        entry.close()
    for role in ("gateway", "broker", "collector"):
        alive = [node for node in nodes.values() if node.role == role and node.is_alive]
        for node in alive:
            node.ask_to_stop()
        for node in alive:
            node.close()
    paths.close()
    folder.close()
