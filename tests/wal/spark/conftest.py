"""One Spark session for all tests that need one: starting it takes seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rafka_lab.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The first query of a session starts a JVM, Python workers and the compiler, all on a machine that may be busy.
SPARK_TIMEOUT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT))
            # py4j leaves its sockets to the garbage collector, which is not for us to mend.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark(spark_java: None) -> Iterator["SparkSession"]:
    session = spark_session(app_name="tests")
    yield session
    session.stop()
