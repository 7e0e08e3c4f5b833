"""Spark's own Kafka source reads our gateway and agrees with `rafka_wal`. Its jars come from Maven, where reachable."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rafka_lab import Lab

# The newest that is published; it reads with the Spark that we run.
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
RECORDS = 500

DRIVER = """
import json, sys
from rafka_lab.spark import spark_session
bootstrap, log, package = sys.argv[1:]
spark = spark_session(settings={"spark.jars.packages": package})
columns = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
kafka = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", "orders")
theirs = kafka.option("includeHeaders", "true").option("startingOffsets", "earliest").load().select(*columns)
ours = spark.read.format("rafka_wal").option("topics", "orders").load(log).select(*columns)
counts = {"theirs": theirs.count(), "ours": ours.count()}
counts["differ"] = theirs.exceptAll(ours).count() + ours.exceptAll(theirs).count()
print("RESULT", json.dumps(counts))
spark.stop()
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark_java")
def test_sparks_kafka_source_and_rafka_wal_read_the_same(tmp_path: Path) -> None:
    with Lab(data=tmp_path / "data") as lab:
        producer = Producer({"bootstrap.servers": lab.bootstrap, "compression.type": "zstd"})
        for number in range(RECORDS):
            headers = [("number", str(number).encode())] if number % 3 == 0 else None
            producer.produce("orders", f"value {number}", None if number % 5 == 0 else f"key {number}", headers=headers)
        assert producer.flush(60) == 0
        log = str(lab.data / "broker-0" / "data")
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, lab.bootstrap, log, PACKAGE], capture_output=True, text=True, timeout=800
        )
    if "unresolved dependency" in driver.stderr or "UNRESOLVED DEPENDENCIES" in driver.stderr:
        pytest.skip(f"{PACKAGE} cannot be fetched from Maven here")
    assert driver.returncode == 0, driver.stderr[-4000:]
    result = json.loads(driver.stdout.partition("RESULT ")[2])
    assert result == {"theirs": RECORDS, "ours": RECORDS, "differ": 0}
