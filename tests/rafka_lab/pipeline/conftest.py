"""The Spark session of the source's tests."""

from tests.wal.spark.conftest import pytest_collection_modifyitems, spark

__all__ = ["pytest_collection_modifyitems", "spark"]
