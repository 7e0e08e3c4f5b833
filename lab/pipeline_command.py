"""`rafka-lab pipeline --data DIR --out DIR`: logs to tables and a report, on Spark. Exit code 1: it could not run."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, help="a lab's data folder, or a folder with .log files")
    parser.add_argument("--out", type=Path, required=True, help="where the tables, checkpoints and report.html go")
    parser.add_argument("--traces", type=Path, help="a trace store (SQLite); default: the data folder's own")
    parser.add_argument("--master", default="local[2]", help="Spark's master (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    from rafka_lab.pipeline.sources import PipelineError, find_logs
    from rafka_lab.spark import SparkUnavailableError, spark_session
    from wal.errors import WalError

    try:
        find_logs(arguments.data)  # before Spark starts, which takes seconds
        spark = spark_session(master=arguments.master, app_name="rafka-lab pipeline")
    except (PipelineError, SparkUnavailableError, WalError) as error:
        return _failed(str(error))
    from pyspark.errors import PySparkException

    from rafka_lab.pipeline import run_pipeline

    try:
        result = run_pipeline(spark, arguments.data, arguments.out, arguments.traces)
    except (PipelineError, PySparkException) as error:
        return _failed(str(error))
    finally:
        spark.stop()
    if result.unchanged:
        sys.stdout.write(f"nothing new; the tables in {result.out} are as they were\n")
        return 0
    sys.stdout.write(f"{result.added:,} new records; report: {result.report}\n")
    return 0


def _failed(message: str) -> int:
    sys.stderr.write(f"rafka-lab pipeline: {message}\n")
    return 1
