"""The session helper: a sentence without Java, the settings, the package for a cluster, and how far a query is."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rafka_lab import spark as helper
from rafka_lab.java import INSTALL_JAVA
from rafka_lab.spark_progress import bar, progress


def test_without_java_there_is_one_sentence_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "find_java", lambda: None)
    with pytest.raises(helper.SparkUnavailableError) as caught:
        helper.spark_session()
    assert str(caught.value) == INSTALL_JAVA


def test_a_session_has_the_settings_that_the_source_needs(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    context = spark.sparkContext.getConf()
    assert context.get("spark.python.unix.domain.socket.enabled") == "true"
    assert context.get("spark.driver.host") == "127.0.0.1"
    assert context.get("spark.ui.enabled") == "false"


def test_the_package_for_a_cluster_is_whole_without_the_rest_of_the_library(tmp_path: Path) -> None:
    package = helper.package_source(tmp_path)
    with zipfile.ZipFile(package) as archive:
        names = set(archive.namelist())
    assert {"wal/__init__.py", "wal/spark_source.py", "wal/arrow_kernel.py", "rafka_lab/spark_writer.py"} <= names
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r});"
        "import wal.spark_read, wal.spark_source, rafka_lab.spark_writer;"
        "print(wal.spark_read.__file__, rafka_lab.spark_writer.__file__)"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("rafka_wal.zip") == 2


def test_a_bar_shows_how_many_tasks_are_done() -> None:
    assert bar(0, 8).startswith("[..............................] 0 of 8 tasks")
    assert bar(4, 8).startswith("[###############...............] 4 of 8 tasks")
    assert bar(8, 8).startswith("[##############################] 8 of 8 tasks")


def test_the_bar_is_drawn_while_a_query_runs_and_is_gone_afterwards(spark: SparkSession) -> None:
    out = io.StringIO()
    with progress(spark, out):
        spark.sparkContext.parallelize(range(4), 4).map(lambda _: __import__("time").sleep(0.4)).count()
    drawn = out.getvalue()
    assert "of 4 tasks" in drawn
    assert drawn.endswith("\r")
