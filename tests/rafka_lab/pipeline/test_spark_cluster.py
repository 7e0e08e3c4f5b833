"""A real Spark cluster, master and worker as processes on loopback, whose executors are sent the source."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from tests.wal.spark.logs_for_spark import consume_all, everything

LOOPBACK = "127.0.0.1"
# Four JVMs start one after the other.
STARTUP_SECONDS = 240

DRIVER = """
import json, sys
from rafka_lab.spark import spark_session
master, log = sys.argv[1:]
spark = spark_session(master=master, settings={"spark.executor.memory": "512m", "spark.cores.max": "2",
                                               "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"})
where = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("wal").__file__).collect()
frame = spark.read.format("rafka_wal").option("splitBytes", "20000").load(log)
counts = [list(row) for row in frame.groupBy("topic").count().orderBy("topic").collect()]
print("RESULT", json.dumps({"wal": where[0], "counts": counts, "splits": frame.rdd.getNumPartitions()}))
spark.stop()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@contextmanager
def spark_process(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    home = Path(pyspark.__file__).parent
    env = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}
    with (folder / f"{name.rpartition('.')[2]}.log").open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), name, *arguments], env=env, cwd=folder, stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def wait_for(text: str, log: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + STARTUP_SECONDS
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.2)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark_java")
def test_executors_of_a_cluster_read_the_shared_log_with_the_source_they_are_sent(tmp_path: Path) -> None:
    log = tmp_path / "shared" / "wal"
    everything(log)
    master = f"spark://{LOOPBACK}:{(port := free_port())}"
    with ExitStack() as running:
        place = ("--host", LOOPBACK, "--webui-port", "0")
        name = "org.apache.spark.deploy.master.Master"
        head = running.enter_context(spark_process(tmp_path, name, *place, "--port", str(port)))
        wait_for("I have been elected leader", tmp_path / "Master.log", head)
        name = "org.apache.spark.deploy.worker.Worker"
        size = ("--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        worker = running.enter_context(spark_process(tmp_path, name, *place, *size, master))
        wait_for("Successfully registered with master", tmp_path / "Worker.log", worker)
        driver = subprocess.run(
            [sys.executable, "-c", DRIVER, master, str(log)], cwd=tmp_path, capture_output=True, text=True, timeout=500
        )
        assert driver.returncode == 0, driver.stderr[-4000:]
    result = json.loads(driver.stdout.partition("RESULT ")[2])
    assert "rafka_wal.zip" in result["wal"]
    assert result["splits"] > 2
    expected: dict[str, int] = {}
    for row in consume_all(log):
        expected[row[0]] = expected.get(row[0], 0) + 1
    assert dict(result["counts"]) == expected
