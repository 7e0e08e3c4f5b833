"""What a benchmark's client process is told, and what it says when it has done it. Both travel as one line of JSON."""

import msgspec


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One round of one client. Times are seconds; `warm_up` comes before the window that is measured."""

    work: str  # produce, fetch, consume (the far end of `produce` at a rate) or requests
    bootstrap: str
    topic: str
    partitions: int = 1
    message_bytes: int = 1000
    payload: str = "text"
    acks: str = "all"
    codec: str = "none"
    linger_ms: float = 5
    batch_bytes: int = 1_000_000  # at most, of one produce batch
    seconds: float = 2.0
    warm_up: float = 0.5
    rate: float = 0  # messages a second; 0 is as fast as it goes
    messages: int = 0  # to fetch, or to produce (then `seconds` says nothing)
    connections: int = 1


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` were acknowledged (or read, or answered) in `seconds`; `total` counts the warm-up as well."""

    messages: int
    seconds: float
    total: int
    client_cpu: float  # seconds of this process, without its start
    latencies_ms: dict[str, float] = {}  # p50, p99, p99.9, max
