"""The gateway's limits and times, each with its reason. Tests shorten them; programs rarely need to."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All limits of one gateway."""

    # An idle one takes 4 KB (measured with 10,000).
    connections: int = 20_000
    # Requests of one connection that have no answer yet. Clients send 5 produces at a time by default, some 100.
    requests_in_flight: int = 128
    # Their bytes; above it the connection is not read. One request may always be there, whatever its size.
    connection_bytes: int = 16 * MIB
    # The same for all connections together.
    request_bytes: int = 256 * MIB
    # Answers that a client does not read; above it the connection's next request waits.
    unread_bytes: int = 1 * MIB
    # One fetch answer at most. Kafka's broker allows 55 MiB, but a client has its first record sooner, and both nodes
    # need less memory, if answers are smaller; several of this size fit into the arena between the nodes.
    fetch_bytes: int = 8 * MIB
    # Answers of all connections that wait for clients to read them. As it fills up, fetch answers get smaller.
    unread_bytes_of_all: int = 512 * MIB
    # A fetch at a client that reads slowly still makes progress with this much.
    smallest_fetch: int = 1 * MIB
    # Half a request, then silence. Longer than any network hiccup; a slow sender goes on sending.
    half_request_timeout: float = 60.0
    # An answer that is not read: longer than a client that was paused for a while.
    unread_timeout: float = 120.0
    # Kafka's connections.max.idle.ms. Clients expect it and connect again.
    idle_timeout: float = 600.0
    # How often the three are looked for.
    sweep_interval: float = 1.0
    # Free memory that the C library may keep for itself once fewer bytes than this come and go between two sweeps. Left
    # alone it kept 80 MB after a fetch of 50 MB (measured).
    free_heap_bytes: int = 6 * MIB
    # A long poll ends at the broker at most this long after its client went.
    poll_slice: float = 1.0
    # Between two looks at brokers that do not wait by themselves for as many bytes as the client wants.
    gather_pause: float = 0.02
    # On top of what an op may wait by itself; a broker that needs longer is stuck.
    answer_time: float = 10.0
    # A produce's own timeout is the client's; these are its bounds.
    produce_timeout_least: float = 1.0
    produce_timeout_most: float = 60.0
    # A broker that restarts is back within a second; a client that asks for metadata meanwhile waits for it.
    controller_wait: float = 2.0
    # Between attempts to bring a broker's topics up to date.
    sync_pause: float = 0.2
    # Requests at work when the program is told to stop.
    stop_grace: float = 3.0
    # Counters go to the log this often.
    status_interval: float = 60.0
    # The accept queue: a burst of reconnects after a restart must not be refused.
    accept_backlog: int = 1024
