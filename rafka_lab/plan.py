"""How the nodes of a lab find each other: keys and ports are made beforehand, so all can start at the same time."""

from collections.abc import Mapping
from pathlib import Path

from nodes.mesh.identity import load_or_create_key, load_ports, save_ports
from nodes.mesh.quic import join_address, node_id_of
from rafka_lab.errors import LabError
from rafka_lab.folder import DataFolder, free_mesh_ports, free_port
from rafka_lab.otel_environment import why_no_traces
from traces.errors import ConfigurationError
from traces.jaeger_program import URL_VARIABLE, JaegerPlace, find_program, find_url

GATEWAY = "gateway"
COLLECTOR = "collector"
JAEGER = "jaeger"
AUTO = "auto"


class Plan:
    """Identities, addresses and flags of one cluster. `addresses` are those of brokers, as the gateway is told them."""

    def __init__(
        self,
        folder: DataFolder,
        brokers: int,
        port: int,
        advertise: str | None,
        broker_options: Mapping[str, str],
        trace_ratio: float,
        jaeger: str | None,
        shared_bodies: bool,
    ) -> None:
        self._folder = folder
        self._port = port
        self._advertise = advertise
        self._shared_bodies = shared_bodies
        self._broker_options = [word for option in broker_options.items() for word in option]
        self.brokers = [f"broker-{index}" for index in range(brokers)]
        self.addresses: dict[str, list[str]] = {}
        # While a way is slow or lossy: where the gateway finds the relay to a broker, and the port the broker hears.
        self.detours: dict[str, tuple[str, int]] = {}
        self.listen = ""  # where the gateway listens, once it does
        self.traces_url = ""  # where traces are looked at; empty without tracing
        self.trace_store = ""  # the node that keeps them: `collector`, `jaeger`, or none of ours
        self._otlp_url = ""  # where spans are sent to
        self._trace_ratio = trace_ratio
        self._jaeger = jaeger
        self._jaeger_program: Path | None = None

    def prepare(self) -> None:
        """Makes what is missing in the nodes' folders. Ports of an earlier start are kept."""
        self.listen = ""
        self._place_traces()
        self._identity(GATEWAY)
        for name in self.brokers:
            self._identity(name)
            folder = self._folder.node(name)
            known = [join_address(host, port) for host, port in load_ports(folder).items()]
            self.addresses[name] = known or free_mesh_ports()
            if not known:
                save_ports(folder, self.addresses[name])

    def _place_traces(self) -> None:
        """Decides who keeps the traces: nobody, a Jaeger of the user's, or the collector."""
        self.traces_url = self.trace_store = self._otlp_url = ""
        if self._trace_ratio == 0:
            return
        place = self._users_jaeger() if self._jaeger is not None else None
        self._jaeger_program = find_program() if self._jaeger == AUTO and place is None else None
        if place is None:
            self.trace_store = JAEGER if self._jaeger_program else COLLECTOR
            query = f"http://127.0.0.1:{free_port()}"
            place = JaegerPlace(query, f"http://127.0.0.1:{free_port()}" if self._jaeger_program else query)
        self.traces_url, self._otlp_url = place.url, place.otlp

    def why_no_traces(self, environ: Mapping[str, str]) -> str:
        """Why nodes with this environment leave the lab's own store empty; nothing if they do not, or it has none.

        For a Jaeger of the user's, the variables may well name its own receiver.
        """
        return why_no_traces(self._otlp_url, environ) if self.trace_store else ""

    def _users_jaeger(self) -> JaegerPlace | None:
        try:
            return find_url() if self._jaeger == AUTO else find_url({URL_VARIABLE: self._jaeger or ""})
        except ConfigurationError as error:
            raise LabError(str(error)) from None

    def dialed(self, name: str) -> list[str]:
        """Where the gateway finds the broker."""
        return [self.detours[name][0]] if name in self.detours else self.addresses[name]

    def broker_flags(self, index: int) -> list[str]:
        name = self.brokers[index]
        flags = ["--name", name, "--data", str(self._folder.node(name)), "--allow", self._identity(GATEWAY)]
        return [
            *flags,
            "--index",
            str(index),
            "--brokers",
            str(len(self.brokers)),
            *self._broker_options,
            *(["--hear-only", str(self.detours[name][1])] if name in self.detours else []),
            *self._traces(),
        ]

    def gateway_flags(self) -> list[str]:
        flags = ["--name", GATEWAY, "--data", str(self._folder.node(GATEWAY))]
        flags += ["--listen", self.listen or f"127.0.0.1:{self._port}"]
        if self._advertise is not None:
            flags += ["--advertise", self._advertise]
        if not self._shared_bodies:
            flags.append("--no-shared-bodies")
        for index, name in enumerate(self.brokers):
            flags += ["--broker", f"{index}={self._identity(name)}@{','.join(self.dialed(name))}"]
        return flags + self._traces()

    def collector_flags(self) -> list[str]:
        folder = self._folder.node(COLLECTOR)
        folder.mkdir(exist_ok=True)
        return ["--port", _port(self.traces_url), "--store", str(folder / "traces.sqlite")]

    def jaeger_flags(self) -> list[str]:
        ports = ["--port", _port(self.traces_url), "--otlp-port", _port(self._otlp_url)]
        return ["--program", str(self._jaeger_program), "--folder", str(self._folder.node(JAEGER)), *ports]

    def _traces(self) -> list[str]:
        """The ratio always: an `OTEL_*` variable that names a collector must not turn on what was turned off."""
        place = ["--traces", self._otlp_url] if self._otlp_url else []
        return [*place, "--trace-ratio", str(self._trace_ratio)]

    def _identity(self, name: str) -> str:
        return node_id_of(load_or_create_key(self._folder.node(name)))


def _port(url: str) -> str:
    return url.rpartition(":")[2]
