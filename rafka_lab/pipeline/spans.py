"""The trace store as a Spark DataFrame, to be joined with the log on `trace_id`."""

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from traces.schema import open_for_reading

_QUERY = """
SELECT lower(hex(traces.trace_id)), printf('%016x', spans.span_id), services.name, operations.name,
       spans.start / 1000, spans.duration, spans.status
FROM spans
JOIN traces USING (trace_no)
JOIN services USING (service_id)
JOIN operations USING (operation_id)
"""
_SCHEMA = pa.schema(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("service", pa.string()),
        ("name", pa.string()),
        ("start", pa.timestamp("us", tz="UTC")),
        ("duration_ns", pa.int64()),
        ("status", pa.int32()),
    ]
)


def spans_frame(spark: SparkSession, store: Path | str) -> DataFrame:
    """One row a span. The store is read by this process, as it is now."""
    connection = open_for_reading(Path(store))
    try:
        rows = connection.execute(_QUERY).fetchall()
    finally:
        connection.close()
    columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=_SCHEMA))
