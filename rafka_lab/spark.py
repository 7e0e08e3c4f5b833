"""A Spark session that reads the broker's log: its settings, the sources it knows, and the way to a cluster.

    spark = spark_session()                                 # this machine, two cores
    spark = spark_session(master="spark://head:7077")       # a cluster; the log lies on a path that all nodes share

On a cluster each worker needs Python and what `REQUIREMENTS` names; the source itself is sent along. A session that
was made elsewhere learns to read the log by `register_sources(spark)` and `send_source(spark)`, and needs
`spark.sql.python.filterPushdown.enabled=true`.
"""

import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import wal
from rafka_lab.java import INSTALL_JAVA, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the source imports on an executor, besides PySpark.
REQUIREMENTS = ("confluent-kafka", "cramjam", "crc32c", "msgspec", "numba", "numpy", "pandas<3", "pyarrow")
LOOPBACK = "127.0.0.1"

_SETTINGS = {
    # Without it Spark refuses a source that takes filters.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Arrow batches between the JVM and Python go over a local socket file: half the cost a byte of TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # The default of 200 is made for clusters; with two cores it is 200 tiny tasks after each shuffle.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.memory": "2g",
    # A bar of the JVM's own on stderr, which a notebook shows in the wrong place; see `progress` instead.
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Nothing listens that nobody asked for.
    "spark.ui.enabled": "false",
    # A stream's checkpoint through Hadoop's other API starts a `readlink` process for every file: 80 ms a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


class SparkUnavailableError(RuntimeError):
    """There is no Java that Spark could run on."""


def spark_session(
    master: str = "local[2]", app_name: str = "rafka-lab", settings: dict[str, str] | None = None
) -> "SparkSession":
    """A session with `rafka_wal` and `rafka` registered. `settings` win over the ones here."""
    _prepare_environment(local=master.startswith("local"))
    from pyspark.sql import SparkSession  # a second of imports, which nobody else should pay

    builder = SparkSession.builder.master(master).appName(app_name)
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    for name, value in {**_SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_sources(spark)
    if not master.startswith("local"):
        send_source(spark)
    return spark


def _prepare_environment(*, local: bool) -> None:
    java = find_java()
    if java is None:
        raise SparkUnavailableError(INSTALL_JAVA)
    os.environ["JAVA_HOME"] = str(java.resolve().parent.parent)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def register_sources(spark: "SparkSession") -> None:
    """Makes `rafka_wal` (reads) and `rafka` (writes) known to a session, however it was made."""
    from rafka_lab.spark_writer import Rafka
    from wal.spark_source import RafkaWal

    spark.dataSource.register(RafkaWal)
    spark.dataSource.register(Rafka)


def send_source(spark: "SparkSession") -> Path:
    """Sends the source's package to all executors of a session."""
    package = package_source(Path(tempfile.mkdtemp(prefix="rafka-lab-")))
    spark.sparkContext.addPyFile(str(package))
    return package


def package_source(folder: Path) -> Path:
    """The sources as a zip file, as `--py-files` of spark-submit takes it."""
    target = folder / "rafka_wal.zip"
    ours = Path(__file__).parent
    log = Path(wal.__file__).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [*sorted(log.glob("*.py")), ours / "__init__.py", ours / "spark_writer.py"]:
            archive.write(path, Path(path.parent.name) / path.name)
    return target
