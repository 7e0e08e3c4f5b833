"""The pipeline: tables that agree with a consumer, each record once over many runs, and a report of what is wrong."""

import random
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from lab import pipeline_command
from lab.command import main
from rafka_lab.pipeline import PipelineError, run_pipeline, tables
from rafka_lab.pipeline.stream import Folders, write_batch
from tests.wal.spark.logs_for_spark import SMALL, Filler, as_consumed, consume_all, everything
from wal import SingleWal


def files(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_each_record_is_in_the_tables_once_over_many_runs(spark: SparkSession, tmp_path: Path) -> None:
    folder, out = tmp_path / "wal", tmp_path / "out"
    everything(folder)
    expected = consume_all(folder)
    first = run_pipeline(spark, folder, out)
    assert first.added == len(expected)
    assert as_consumed(spark.read.parquet(str(out / "parquet" / "records")).toArrow()) == expected
    assert as_consumed(DeltaTable(out / "delta" / "records").to_pyarrow_table()) == expected

    before = files(out / "parquet") | files(out / "delta")
    second = run_pipeline(spark, folder, out)
    assert second.unchanged
    assert files(out / "parquet") | files(out / "delta") == before

    with SingleWal.open(folder, SMALL) as log:
        record = log.state.by_name(1, "orders")
        assert record is not None
        Filler(log, random.Random(3)).fill(record, 10)
    grown = consume_all(folder)
    third = run_pipeline(spark, folder, out)
    assert third.added == len(grown) - len(expected) > 0
    assert as_consumed(DeltaTable(out / "delta" / "records").to_pyarrow_table()) == grown

    batch = spark.read.parquet(str(out / "parquet" / "records" / "log=log" / "batch=000000000"))
    write_batch(batch.drop("date").localCheckpoint(), 0, "log", Folders(out))  # as after a crash behind the commit
    assert as_consumed(DeltaTable(out / "delta" / "records").to_pyarrow_table()) == grown

    partitions = {
        (row["org_id"], row["topic"], row["partition"]): (row["records"], row["missing"], row["duplicates"])
        for row in third.tables["partitions"].to_pylist()
    }
    assert sum(records for records, _, _ in partitions.values()) == len(grown)
    assert all(missing == 0 and twice == 0 for _, missing, twice in partitions.values())
    topics = Counter(row[0] for row in grown)
    found: Counter[str] = Counter()
    for row in third.tables["topics"].to_pylist():
        found[row["topic"]] += row["records"]
    assert found == topics
    report = third.report.read_text()
    assert "no offset is missing" in report
    assert f"<dt>records</dt><dd>{len(grown):,}</dd>" in report


def test_gaps_and_duplicates_are_found(spark: SparkSession) -> None:
    rows = [("log", 1, "t", "id", 0, offset, 0, offset) for offset in (0, 1, 1, 2, 5)]
    columns = "log string, org_id long, topic string, topic_id string, partition int, offset long, segment long"
    found = tables.continuity(spark.createDataFrame(rows, f"{columns}, position long")).collect()
    assert [(row.kind, row.offset, row.missing) for row in found] == [("duplicate", 1, 0), ("gap", 5, 2)]


def test_a_folder_without_a_log_is_one_clear_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(main.__globals__["SUBCOMMANDS"], "pipeline", (pipeline_command.__name__, "tables"))
    assert main(["pipeline", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "there is no log in" in capsys.readouterr().err
    with pytest.raises(PipelineError, match="there is no folder"):
        run_pipeline(None, tmp_path / "nothing", tmp_path / "out")  # type: ignore[arg-type]
