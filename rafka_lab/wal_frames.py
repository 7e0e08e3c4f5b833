"""`lab.wal`: the brokers' logs as DataFrames, read from their files while they write. Never writes.

The index has most of it, so nothing is decoded before `frame()` or `records()` is asked for.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rafka_lab.errors import LabError, UnknownTopicError
from rafka_lab.hexdump import hexdump
from rafka_lab.records import texts
from rafka_lab.wal_rows import (
    data_rows,
    entry_frame,
    kind_name,
    live,
    partition_rows,
    record_rows,
    topic_name,
    traces_at,
    verdict,
)
from wal.entry import Kind
from wal.errors import WalError
from wal.reader import WalReader
from wal.verify import verify

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

# Above this many records a DataFrame of Python objects is the wrong tool; Spark's source is the right one.
FRAME_LIMIT = 2_000_000


class WalFrames:
    """The logs in `folders` (broker name -> its log's folder)."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._readers: dict[str, WalReader] = {}

    def __repr__(self) -> str:
        return f"<WAL of {', '.join(self._folders)}: segments(), partitions(), entries(), frame(), verify()>"

    @property
    def folders(self) -> dict[str, Path]:
        """Where each broker's log is."""
        return dict(self._folders)

    def segments(self) -> "pd.DataFrame":
        """One line a log file: its size, state and how much it holds."""
        import pandas as pd

        rows = [
            {
                "broker": broker,
                "segment": segment.number,
                "file": segment.file.path.name,
                "bytes": segment.end,
                "state": "sealed" if segment.sealed is not None else "active",
                "partitions": len(segment.summaries),
                "batches": sum(part.entries for part in segment.summaries.values()),
                "records": sum(part.next_offset - part.first_offset for part in segment.summaries.values()),
            }
            for broker, reader in self._logs()
            for segment in reader.segments
        ]
        return pd.DataFrame(rows)

    def partitions(self) -> "pd.DataFrame":
        """One line a partition that a broker leads: its offsets and bytes."""
        import pandas as pd

        return pd.DataFrame(
            [row for broker, reader in self._logs() for row in partition_rows(broker, reader)],
            columns=["broker", "topic", "partition", "log_start", "high_watermark", "batches", "bytes", "topic_id"],
        )

    def contents(self) -> "pd.DataFrame":
        """One line for each partition in each segment: what the WAL map draws."""
        import pandas as pd

        rows = [
            {
                "broker": broker,
                "segment": segment.number,
                "topic": topic_name(reader, key[0]),
                "partition": key[1],
                "first_offset": part.first_offset,
                "next_offset": part.next_offset,
                "batches": part.entries,
                "bytes": part.bytes,
            }
            for broker, reader in self._logs()
            for segment in reader.segments
            for key, part in sorted(segment.summaries.items(), key=lambda item: item[1].first_offset)
        ]
        names = ["broker", "segment", "topic", "partition", "first_offset", "next_offset", "batches", "bytes"]
        return pd.DataFrame(rows, columns=names)

    def entries(self, topic: str | None = None, partition: int | None = None) -> "pd.DataFrame":
        """One line an entry, in the order of the logs; with a topic only its data."""
        import pandas as pd

        if topic is not None:
            self._require(topic)
        frames = [
            entry_frame(broker, reader, segment) for broker, reader in self._logs() for segment in reader.segments
        ]
        frame = pd.concat(frames, ignore_index=True)
        if topic is not None:
            frame = frame[(frame["topic"] == topic) & (frame["kind"] == kind_name(Kind.DATA))]
        if partition is not None:
            frame = frame[(frame["partition"] == partition) & (frame["kind"] == kind_name(Kind.DATA))]
        return frame.reset_index(drop=True)

    def frame(self, topic: str, partition: int | None = None, *, text: bool = True) -> "pd.DataFrame":
        """One line a record, decoded from the log's bytes: what `fetch` gives, and where each record lies on disk."""
        import pandas as pd

        self._require(topic)
        rows: list[tuple[Any, ...]] = []
        for broker, reader in self._logs():
            for key, start in live(reader, topic, partition):
                rows += record_rows(broker, reader, key, start, FRAME_LIMIT - len(rows))
        names = ["partition", "offset", "timestamp", "key", "value", "headers", "trace_id"]
        frame = pd.DataFrame(rows, columns=[*names, "broker", "segment", "position"])
        if text:
            for name in ("key", "value"):
                frame[name] = pd.Series(texts(frame[name].tolist()), dtype=object)
        frame["timestamp"] = frame["timestamp"].to_numpy("int64").astype("datetime64[ms]")
        frame["timestamp"] = frame["timestamp"].dt.tz_localize("UTC")  # of the same type as what `fetch` gives
        frame = frame.astype({"partition": "int32", "offset": "int64", "segment": "int64", "position": "int64"})
        return frame.sort_values(["partition", "offset"], ignore_index=True)

    def verify(self) -> "pd.DataFrame":
        """Checks every byte of every log; one line a broker."""
        import pandas as pd

        return pd.DataFrame([verdict(broker, verify(folder)) for broker, folder in self._folders.items()])

    def hexdump(self, segment: int, position: int, broker: str = "broker-0", *, limit: int = 512) -> str:
        """The bytes of one entry, each field named."""
        if broker not in self._folders:
            raise LabError(f"there is no log of {broker!r}; there are {', '.join(self._folders)}")
        reader = dict(self._logs())[broker]
        if segment not in reader.segments:
            raise LabError(f"{broker} has no segment {segment}: see lab.wal.segments()")
        rows = reader.segments[segment].rows()
        at = np.flatnonzero(rows["position"] == position)
        if not len(at):
            raise LabError(f"no entry of segment {segment} starts at {position}: see lab.wal.entries()")
        file = reader.segments[segment].file
        return hexdump(file.entry(position, int(rows["length"][at[0]])), position, limit)

    def records(self, segment: int, position: int, broker: str = "broker-0") -> "pd.DataFrame":
        """The records of the one data entry there."""
        found = self.entries()
        entry = found[(found["broker"] == broker) & (found["segment"] == segment) & (found["position"] == position)]
        if entry.empty or entry.iloc[0]["kind"] != kind_name(Kind.DATA):
            raise LabError(f"no data entry of {broker} starts at {segment}:{position}: see lab.wal.entries()")
        line = entry.iloc[0]
        frame = self.frame(str(line["topic"]), int(line["partition"]))
        return frame[(frame["segment"] == segment) & (frame["position"] == position)].reset_index(drop=True)

    def trace_ids(self, topic: str, frame: "pd.DataFrame") -> "pd.Series | None":
        """The trace id of each record by its partition and offset; None where the request was not traced."""
        import pandas as pd

        found = pd.Series(None, index=frame.index, dtype=object)
        for _, reader in self._logs():
            for key, _ in live(reader, topic, None):
                at = frame.index[(frame["partition"] == key[1]) & (frame["offset"] >= 0)]
                if len(at):
                    rows = data_rows(reader, key)
                    found.loc[at] = traces_at(rows, frame.loc[at, "offset"].to_numpy())
        return found

    def _logs(self) -> Iterator[tuple[str, WalReader]]:
        """Each log as it is now."""
        for broker, folder in self._folders.items():
            try:
                reader = self._readers.get(broker)
                if reader is None:
                    reader = self._readers[broker] = WalReader(folder)
                else:
                    reader.refresh()
            except WalError as error:
                self._readers.pop(broker, None)
                raise LabError(f"the log of {broker} cannot be read: {error}") from error
            yield broker, reader

    def _require(self, topic: str) -> None:
        names = {known.name for _, reader in self._logs() for known in reader.state.topics.values()}
        if topic not in names:
            there = f"the topics are {', '.join(sorted(names))}" if names else "there are no topics yet"
            raise UnknownTopicError(f"no log holds a topic {topic!r}: {there}")
