"""Small requests: one record of 100 B each, one in flight a connection, by a client on bare sockets.

The mock shows what this client could do at most; where a side comes near it, the client is what was measured.
"""

from rafka_lab.bench.bench import CPU, Bench, client, cpu_used
from rafka_lab.bench.sides import Side
from rafka_lab.bench.tasks import Task

MESSAGE_BYTES = 100
QUICK_CONNECTIONS = {"1": (1, 64), "all": (64,)}
FULL_CONNECTIONS = {"1": (1, 64, 512), "all": (1, 64, 512)}
_MICROSECONDS = 1e6


def run(bench: Bench) -> None:
    with bench.sides(mock=True) as sides:
        for acks, counts in (QUICK_CONNECTIONS if bench.quick else FULL_CONNECTIONS).items():
            topic = bench.topic(f"requests-{acks}")
            for side in sides:
                side.create_topic(topic, synced=acks == "all")
            for connections in counts:
                measure(bench, sides, topic, acks, connections)


def measure(bench: Bench, sides: list[Side], topic: str, acks: str, connections: int) -> None:
    chosen = [side for side in sides if side.makes_topics or acks == "1"]
    found = bench.rounds(chosen, lambda side: answered(bench, side, topic, acks, connections))
    many = f"{connections} connection{'s' if connections > 1 else ''}"
    bench.compare(f"{many}, acks={acks}", found, {"requests": "1/s"})


def answered(
    bench: Bench, side: Side, topic: str, acks: str, connections: int, message_bytes: int = MESSAGE_BYTES
) -> dict[str, float]:
    """Requests a second, and the microseconds of CPU that one costs each process."""
    task = Task(
        work="requests",
        bootstrap=side.bootstrap,
        topic=topic,
        acks=acks,
        message_bytes=message_bytes,
        connections=connections,
        seconds=bench.pace.seconds,
        warm_up=bench.pace.warm_up,
    )
    outcome, used = cpu_used(side, lambda: client(task))
    used[f"{CPU}client"] = outcome.client_cpu
    figures = {name: seconds * _MICROSECONDS / outcome.total for name, seconds in used.items()}
    return {"requests": outcome.messages / outcome.seconds, **figures}
