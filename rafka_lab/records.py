"""Fetched records as the columns of a DataFrame: partition, offset, timestamp, key, value, headers."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from confluent_kafka import Message

COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]


class Columns:
    """Grows by whole lists of messages: a list a column is several times as fast as a row a record."""

    def __init__(self) -> None:
        self.partition: list[Any] = []
        self.offset: list[Any] = []
        self.timestamp: list[Any] = []
        self.key: list[Any] = []
        self.value: list[Any] = []
        self.headers: list[Any] = []

    def __len__(self) -> int:
        return len(self.offset)

    def add(self, messages: "list[Message]") -> None:
        self.partition += [message.partition() for message in messages]
        self.offset += [message.offset() for message in messages]
        self.timestamp += [message.timestamp()[1] for message in messages]
        self.key += [message.key() for message in messages]
        self.value += [message.value() for message in messages]
        self.headers += [message.headers() or [] for message in messages]


def frame_of(columns: Columns, *, text: bool) -> "pd.DataFrame":
    """The DataFrame, ordered by partition and offset."""
    import numpy as np
    import pandas as pd

    frame = pd.DataFrame(
        {
            "partition": np.array(columns.partition, np.int32),
            "offset": np.array(columns.offset, np.int64),
            "timestamp": np.array(columns.timestamp, "datetime64[ms]"),
            "key": pd.Series(texts(columns.key) if text else columns.key, dtype=object),
            "value": pd.Series(texts(columns.value) if text else columns.value, dtype=object),
            "headers": pd.Series(columns.headers, dtype=object),
        },
        columns=COLUMNS,
    )
    frame["timestamp"] = frame["timestamp"].dt.tz_localize("UTC")
    if len(set(columns.partition)) > 1:
        frame = frame.sort_values(["partition", "offset"], ignore_index=True)
    return frame


def texts(values: list[bytes | None]) -> list[Any]:
    """Each as text where it is UTF-8, else as the bytes it is."""
    try:
        return [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError:
        return [_text(value) for value in values]


def _text(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
