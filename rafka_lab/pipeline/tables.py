"""The tables that are computed from records and spans, one function a table. Plain DataFrames in, DataFrames out."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

PARTITION = ("log", "org_id", "topic", "topic_id", "partition")
TOP_KEYS = 20
_LATENCY_MS = "(unix_micros(append_time) - unix_micros(timestamp)) / 1000"
_PLAIN_BYTES = "coalesce(length(key), 0) + coalesce(length(value), 0)"
CREATE_TIME = 0


def topics(records: DataFrame) -> DataFrame:
    """Records, sizes and times of each topic."""
    return records.groupBy("log", "org_id", "topic", "topic_id").agg(*_counts()).orderBy("log", "org_id", "topic")


def producers(records: DataFrame) -> DataFrame:
    """The same of each producer id; -1 are producers without idempotence."""
    return records.groupBy("log", "producer_id", "topic").agg(*_counts()).orderBy("log", "producer_id", "topic")


def partitions(records: DataFrame) -> DataFrame:
    """The same of each partition, and whether its offsets are whole."""
    whole = records.groupBy(*PARTITION).agg(
        *_counts(),
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.countDistinct("offset").alias("offsets"),
    )
    return (
        whole.withColumn("duplicates", f.col("records") - f.col("offsets"))
        .withColumn("missing", f.expr("last_offset - first_offset + 1 - offsets"))
        .drop("offsets")
        .orderBy(*PARTITION)
    )


def _counts() -> list[Column]:
    return [
        f.count("*").alias("records"),
        f.countDistinct("segment", "position").alias("batches"),
        f.expr(f"sum({_PLAIN_BYTES})").alias("bytes"),
        f.expr("count_if(key is null)").alias("null_keys"),
        f.expr("count_if(value is null)").alias("null_values"),
        f.min("timestamp").alias("first_time"),
        f.max("timestamp").alias("last_time"),
    ]


def continuity(records: DataFrame) -> DataFrame:
    """Every place where a partition's offsets do not follow each other: a gap, or the same offset again."""
    order = Window.partitionBy(*PARTITION).orderBy("offset", "segment", "position")
    stepped = records.select(*PARTITION, "offset", "segment", "position").withColumn(
        "previous", f.lag("offset").over(order)
    )
    return (
        stepped.where("offset != previous + 1")
        .withColumn("kind", f.expr("if(offset = previous, 'duplicate', 'gap')"))
        .withColumn("missing", f.expr("greatest(offset - previous - 1, 0)"))
        .orderBy(*PARTITION, "offset")
    )


def codecs(records: DataFrame) -> DataFrame:
    """Bytes of keys and values against bytes on disk, by codec."""
    batches = records.groupBy("log", "codec", "topic", "segment", "position").agg(
        f.first("size").alias("size"), f.count("*").alias("records"), f.expr(f"sum({_PLAIN_BYTES})").alias("bytes")
    )
    return (
        batches.groupBy("codec", "topic")
        .agg(
            f.count("*").alias("batches"),
            f.sum("records").alias("records"),
            f.sum("bytes").alias("bytes"),
            f.sum("size").alias("stored_bytes"),
        )
        .withColumn("ratio", f.expr("bytes / stored_bytes"))
        .orderBy("codec", "topic")
    )


def latency(records: DataFrame) -> DataFrame:
    """Milliseconds from the producer's time of a record to its append; times that the broker set say nothing."""
    return (
        records.where(f.col("timestampType") == CREATE_TIME)
        .withColumn("ms", f.expr(_LATENCY_MS))
        .groupBy("topic", "partition")
        .agg(f.count("ms").alias("records"), *_percentiles("ms"))
        .orderBy("topic", "partition")
    )


def _percentiles(column: str) -> list[Column]:
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return [
        *(f.percentile_approx(column, share, 10_000).alias(name) for name, share in shares.items()),
        f.min(column).alias("least"),
        f.max(column).alias("most"),
    ]


def key_skew(records: DataFrame) -> DataFrame:
    """The keys with the most records of each topic, and their share of it."""
    counted = records.where("key is not null").groupBy("topic", "key").agg(f.count("*").alias("records"))
    of_topic = Window.partitionBy("topic")
    ranked = counted.select(
        "*",
        f.row_number().over(of_topic.orderBy(f.desc("records"), "key")).alias("rank"),
        (f.col("records") / f.sum("records").over(of_topic)).alias("share"),
        f.count("*").over(of_topic).alias("keys"),
    )
    return ranked.where(f.col("rank") <= TOP_KEYS).orderBy("topic", "rank")


def hops(records: DataFrame, spans: DataFrame) -> DataFrame:
    """Milliseconds of each span of the requests that stored these records."""
    stored = records.where("trace_id is not null").select("topic", "trace_id").distinct()
    return (
        spans.join(stored, "trace_id")
        .withColumn("ms", f.col("duration_ns") / 1_000_000)
        .groupBy("topic", "service", "name")
        .agg(f.count("*").alias("spans"), f.countDistinct("trace_id").alias("traces"), *_percentiles("ms"))
        .orderBy("topic", "service", "name")
    )


OF_RECORDS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "topics": topics,
    "partitions": partitions,
    "producers": producers,
    "continuity": continuity,
    "codecs": codecs,
    "latency": latency,
    "key_skew": key_skew,
}
HOPS = "hops"
