"""What handlers get to know: the gateway's parts, and the client's connection that a request came on."""

import asyncio
from dataclasses import dataclass, field

from nodes.gateway.brokers import Brokers
from nodes.gateway.settings import Settings
from nodes.gateway.topics import Topics
from nodes.kafka import Request
from nodes.mesh import NO_TRACE, Trace

# Clients see one Kafka broker: the gateway.
NODE_ID = 0


@dataclass(frozen=True, slots=True)
class Advertised:
    """Where clients are told to connect."""

    host: str
    port: int


@dataclass(slots=True)
class Session:
    """One client connection. `id` is also the lane of its produces."""

    id: int
    peer: str
    software: str = ""
    software_version: str = ""
    # Held while a produce is routed: the next one on this connection must not be sent before it.
    produce_gate: asyncio.Lock = field(default_factory=asyncio.Lock)
    produces_routed: int = 0  # produces that hold the gate, wait for it, or wait for several brokers
    produces_sent: int = 0


@dataclass(slots=True)
class Exchange:
    """One request at work."""

    request: Request
    session: Session
    brokers: Brokers
    topics: Topics
    settings: Settings
    advertised: Advertised
    stopping: asyncio.Event
    fetch_bytes: int = 0
    trace: Trace = NO_TRACE  # the request's span, if it has one
