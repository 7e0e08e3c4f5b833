"""Spark's own Kafka source reads our gateway and agrees with `rafka_wal`, in a batch query and as a stream.

Its jars come from Maven and are kept in the user's cache.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rafka_lab import Lab
from tests.conftest import missing

# The newest that are published. The source runs in the Spark that we have: both are of Scala 2.13, and what it uses of
# Spark has not changed since. Its part for delegation tokens, which we do not use, stopped at an older version.
SOURCE = "4.2.0"
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SOURCE}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.0",
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 100  # of each codec
DOWNLOAD_SECONDS = 300
QUERY_SECONDS = 400

DRIVER = """
import json, sys
from rafka_lab.spark import spark_session
bootstrap, log, jars, work = sys.argv[1:]
spark = spark_session(settings={"spark.jars": jars})
columns = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
kafka = {"kafka.bootstrap.servers": bootstrap, "subscribe": "orders", "includeHeaders": "true",
         "startingOffsets": "earliest"}
theirs = spark.read.format("kafka").options(**kafka).load().select(*columns)
ours = spark.read.format("rafka_wal").option("topics", "orders").load(log).select(*columns)
found = {"theirs": theirs.count(), "ours": ours.count()}
found["differ"] = theirs.exceptAll(ours).count() + ours.exceptAll(theirs).count()
stream = spark.readStream.format("kafka").options(**kafka).load().select(*columns).writeStream.format("parquet")
stream = stream.option("path", work + "/streamed").option("checkpointLocation", work + "/checkpoint")
stream.trigger(availableNow=True).start().awaitTermination()
streamed = spark.read.parquet(work + "/streamed")
found["streamed"] = streamed.count()
found["streamed_differ"] = streamed.exceptAll(ours).count() + ours.exceptAll(streamed).count()
print("RESULT", json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="session")
def kafka_source(program: Callable[[str], str]) -> str:
    """The jars of Spark's Kafka source, as `spark.jars` takes them."""
    maven = program("mvn")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rafka-lab" / "compat"
    folder = cache / f"spark-sql-kafka-{SOURCE}"
    for artifact in ARTIFACTS:
        _, name, version = artifact.split(":")
        if (folder / f"{name}-{version}.jar").exists():
            continue
        copy = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}", "-Dmdep.useBaseVersion=true"]
        fetched = subprocess.run(
            [maven, "-q", "-B", "dependency:copy", *copy], capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
        )
        if fetched.returncode:
            missing("maven", f"{artifact} cannot be fetched from Maven: {fetched.stdout[-1000:]}")
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


@pytest.mark.timeout(DOWNLOAD_SECONDS + QUERY_SECONDS)
@pytest.mark.usefixtures("spark_java")
def test_sparks_kafka_source_and_rafka_wal_read_the_same(kafka_source: str, tmp_path: Path) -> None:
    with Lab(data=tmp_path / "data") as lab:
        produce(lab)
        log = str(lab.data / "broker-0" / "data")
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, lab.bootstrap, log, kafka_source, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=QUERY_SECONDS,
        )
    assert driver.returncode == 0, driver.stderr[-4000:]
    result = json.loads(driver.stdout.partition("RESULT ")[2])
    count = RECORDS * len(CODECS)
    assert result == {"theirs": count, "ours": count, "differ": 0, "streamed": count, "streamed_differ": 0}


def produce(lab: Lab) -> None:
    """Every codec, null keys and values, and headers, over two partitions."""
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": lab.bootstrap, "compression.type": codec})
        for number in range(RECORDS):
            headers = [("number", str(number).encode()), ("none", None)] if number % 3 == 0 else None
            key = None if number % 5 == 0 else f"key {number}"
            value = None if number % 7 == 0 else f"{codec} {number}" * 10
            producer.produce("orders", value, key, partition=number % 2, headers=headers)
        assert producer.flush(60) == 0
