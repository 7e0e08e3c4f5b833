"""Other Kafka clusters to compare with: Apache Kafka itself, and librdkafka's mock, the most that its client can do.

    with ApacheKafka() as kafka:      # artifacts from Maven Central, once; needs Java 17+ and Maven
        kafka.bootstrap               # a single node on loopback, ended with this process

Every peer is a context manager with `bootstrap`, `pids` (process id by name) and `version`.
"""

from rafka_lab.peers.artifacts import KAFKA_VERSION, PeerUnavailableError, kafka_is_there
from rafka_lab.peers.kafka import ApacheKafka
from rafka_lab.peers.mock import MockCluster

__all__ = ["KAFKA_VERSION", "ApacheKafka", "MockCluster", "PeerUnavailableError", "kafka_is_there"]
