"""The mesh's times, sizes and rates, each with its reason. Tests shorten them; programs rarely need to."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All limits of one mesh node."""

    # QUIC itself notices a killed or frozen peer after 30-35 s and cannot be told otherwise.
    ping_interval: float = 0.5
    ping_deadline: float = 2.0
    # How often silence and expired calls are looked for: down is said at most this long after the deadline.
    watch_interval: float = 0.2
    # A legitimate Hello takes milliseconds; a connection that says nothing must not be kept.
    hello_timeout: float = 2.0
    # QUIC repeats a lost first packet after 1 s, then 2 s: another dial beside the first finds a restarted node sooner.
    redial_after: float = 0.35
    # A node that was frozen answers the dials of that time first, so the last ones may take long.
    dial_timeout: float = 2.0
    # Attempts of one source that come closer together than a dialer makes them have waited: the node was frozen.
    burst: float = 0.1
    # A node that is back must serve within a second, so the back-off stays under it.
    backoff_first: float = 0.02
    backoff_limit: float = 0.25
    # Longer than any Kafka client waits for a request by default.
    call_timeout: float = 30.0
    # Requests to one peer that have no answer yet. One request may always go, whatever its size.
    bytes_in_flight: int = 32 * 1024 * 1024
    # Keeps the tables on both sides small when the bodies are.
    calls_in_flight: int = 8192
    # One stream batches best; a second keeps a lost packet from holding up every lane.
    lane_streams: int = 2
    # Of the 100 streams that QUIC grants; the rest is for lanes, bulk and control.
    single_streams: int = 64
    # Handlers of one peer at work at the same time. Above it calls are answered with BUSY.
    handlers: int = 10_000
    # Bodies of one peer that are not whole yet: its 32 MB in flight or one of the largest size, with room to spare.
    body_bytes: int = 256 * 1024 * 1024
    # Memory that is shared with a peer on the same machine, for bodies on their way to it: as much as may be in flight.
    # Only what is used is there. 0 sends all bodies over the mesh.
    arena_bytes: int = 32 * 1024 * 1024
    # Full handshakes a second for sources that are not known peers; each costs the node about a millisecond.
    stranger_handshakes: int = 50
    # How long close() waits for handlers at work.
    close_grace: float = 2.0
    # And then for the peers to have the last answers; one that is gone or frozen confirms nothing.
    deliver_grace: float = 0.5
