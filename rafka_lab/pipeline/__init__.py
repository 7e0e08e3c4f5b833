"""The data pipeline: a cluster's logs to tables in Parquet and Delta, and a data-quality report. Runs on Spark.

from rafka_lab.pipeline import run_pipeline

result = run_pipeline(spark, "data", "tables")      # again and again: only what is new is read
result.report                                       # an HTML file
"""

from rafka_lab.pipeline.run import PipelineResult, run_pipeline
from rafka_lab.pipeline.sources import PipelineError
from rafka_lab.pipeline.spans import spans_frame
from rafka_lab.pipeline.stream import start_records_stream

__all__ = ["PipelineError", "PipelineResult", "run_pipeline", "spans_frame", "start_records_stream"]
