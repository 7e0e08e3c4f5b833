"""`python -m rafka_lab.peers.mock_program`: a mock cluster that says its address in a line and ends with its stdin."""

import sys

from confluent_kafka import Producer

_START_SECONDS = 30.0


def serve() -> None:
    """A client with a mock cluster inside, which other processes reach by its address; this one does no more."""
    owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
    broker = next(iter(owner.list_topics(timeout=_START_SECONDS).brokers.values()))
    sys.stdout.write(f"{broker.host}:{broker.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
