"""What one log's reader knows, as the lines that `WalFrames` makes DataFrames of."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from rafka_lab.errors import LabError
from wal.compression import Codec
from wal.entry import HEADER_SIZE, KNOWN_KINDS, Kind, unpack_header
from wal.index import Rows, topic_words
from wal.reader import WalReader
from wal.records import decode_records
from wal.segments import Segment
from wal.verify import Verified

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

_CODEC_BITS = 0x07
_HEX_DIGITS = 32  # of a trace id

Key = tuple[bytes, int]  # topic id and partition


def live(reader: WalReader, topic: str, partition: int | None) -> Iterator[tuple[Key, int]]:
    """Partitions of the topic that this log has records of, with their first offsets."""
    for known in list(reader.state.topics.values()):
        for number in range(len(known.leaders)):
            key = (known.topic_id.bytes, number)
            state = reader.state.partitions.get(key)
            if known.name == topic and partition in (None, number) and state is not None and state.high_watermark:
                yield key, state.log_start


def partition_rows(broker: str, reader: WalReader) -> Iterator[dict[str, Any]]:
    for topic in sorted(reader.state.topics.values(), key=lambda known: known.name):
        for key, start in live(reader, topic.name, None):
            parts = [part for segment in reader.segments if (part := segment.summaries.get(key)) is not None]
            yield {
                "broker": broker,
                "topic": topic.name,
                "partition": key[1],
                "log_start": start,
                "high_watermark": reader.state.partition(*key).high_watermark,
                "batches": sum(part.entries for part in parts),
                "bytes": sum(part.bytes for part in parts),
                "topic_id": str(topic.topic_id),
            }


def topic_name(reader: WalReader, topic_id: bytes) -> str:
    known = reader.state.topics.get(topic_id)
    return str(UUID(bytes=topic_id)) if known is None else known.name


def kind_name(kind: int) -> str:
    return Kind(kind).name.lower() if kind in KNOWN_KINDS else f"unknown_0x{kind:02x}"


def entry_frame(broker: str, reader: WalReader, segment: Segment) -> "pd.DataFrame":
    import pandas as pd

    rows = np.array(segment.rows())
    names = {word.tobytes(): "" for word in np.unique(rows["topic"], axis=0)} if len(rows) else {}
    names = {word: topic_name(reader, word) if any(word) else "" for word in names}
    kinds = {int(kind): kind_name(int(kind)) for kind in np.unique(rows["kind"])}
    codecs = {codec.value: codec.name.lower() for codec in Codec}
    return pd.DataFrame(
        {
            "broker": broker,
            "segment": segment.number,
            "position": rows["position"].astype(np.int64),
            "kind": [kinds[kind] for kind in rows["kind"].tolist()],
            "topic": [names[topic.tobytes()] for topic in rows["topic"]],
            "partition": rows["partition"],
            "base_offset": rows["base_offset"],
            "record_count": rows["record_count"].astype(np.int64),
            "bytes": rows["length"].astype(np.int64),
            "codec": [codecs.get(code, "unknown") for code in (rows["attributes"] & _CODEC_BITS).tolist()],
            "appended": pd.to_datetime(rows["append_time"], unit="ms", utc=True),
            "producer_id": rows["producer_id"],
            "trace_id": _hex_ids(rows["trace"]),
        }
    )


def data_rows(reader: WalReader, key: Key) -> Rows:
    """The index rows of one partition, over all segments."""
    return np.concatenate([_rows_of(segment, key) for segment in reader.segments])


def _rows_of(segment: Segment, key: Key) -> Rows:
    rows = segment.rows()
    first, second = topic_words(key[0])
    here = (rows["kind"] == Kind.DATA) & (rows["partition"] == key[1])
    found: Rows = rows[here & (rows["topic"][:, 0] == first) & (rows["topic"][:, 1] == second)]
    return found


def traces_at(rows: Rows, offsets: "np.ndarray[Any, Any]") -> list[str | None]:
    at = np.searchsorted(rows["base_offset"], offsets, side="right") - 1
    ids = np.array([*_hex_ids(rows["trace"]), None], dtype=object)
    inside = (at >= 0) & (offsets < rows["base_offset"][at] + rows["record_count"][at])
    found: list[str | None] = ids[np.where(inside, at, len(rows))].tolist()
    return found


def _hex_ids(traces: "np.ndarray[Any, Any]") -> list[str | None]:
    digits = traces.tobytes().hex()
    some: list[bool] = np.any(traces, axis=1).tolist()
    return [digits[at * _HEX_DIGITS : (at + 1) * _HEX_DIGITS] if known else None for at, known in enumerate(some)]


def record_rows(broker: str, reader: WalReader, key: Key, start: int, room: int) -> Iterator[tuple[Any, ...]]:
    for segment in reader.segments:
        if key not in segment.summaries:
            continue
        rows = _rows_of(segment, key)
        room -= int(rows["record_count"].sum())
        if room < 0:
            raise LabError(
                "the topic has too many records for one DataFrame: ask for one partition, or read it with Spark "
                "(notebook 40_spark_on_the_wal)"
            )
        for row in rows:
            yield from _entry_records(broker, segment, int(row["position"]), int(row["length"]), start)


def _entry_records(broker: str, segment: Segment, position: int, length: int, start: int) -> Iterator[tuple[Any, ...]]:
    entry = segment.file.entry(position, length)
    header = unpack_header(entry)
    trace = header.trace_id.hex() if any(header.trace_id) else None
    for record in decode_records(entry[HEADER_SIZE:]):
        if record.offset >= start:
            yield (
                header.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers),
                trace, broker, segment.number, position,
            )  # fmt: skip


def verdict(broker: str, result: Verified) -> dict[str, Any]:
    return {
        "broker": broker,
        "sound": result.sound,
        "segments": result.segments,
        "entries": result.entries,
        "records": result.records,
        "bytes": result.bytes,
        "torn_tail_bytes": result.torn_tail_bytes,
        "gaps": len(result.gaps),
        "problems": "; ".join(f"{Path(p.path).name}:{p.position}: {p.what}" for p in result.problems),
    }
