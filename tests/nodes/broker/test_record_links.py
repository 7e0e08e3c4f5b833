"""`traceparent` headers of records become links: found in any codec, malformed ones ignored, never many, never slow."""

import pytest
from opentelemetry.trace import SpanContext

from nodes.broker.record_links import MAX_LINKS, links_of
from wal.batch import parse_header
from wal.compression import Codec
from wal.record_count import counted_records
from wal.records import NewRecord, build_batch

TRACE_ID, SPAN_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01".encode()


def record(value: bytes | None, traceparent: bytes | None) -> NewRecord:
    return NewRecord(b"k", value, headers=(("other", b"x"), ("traceparent", traceparent), ("tracestate", b"a=b")))


def found(records: list[NewRecord], codec: Codec = Codec.NONE) -> list[tuple[int, int]]:
    return [(link.trace_id, link.span_id) for link in links(records, codec)]


def links(records: list[NewRecord], codec: Codec) -> list[SpanContext]:
    batch = build_batch(records, codec=codec)
    return links_of(counted_records(batch, parse_header(batch)))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_header_is_found_in_every_codec(codec: Codec) -> None:
    [link] = links([NewRecord(None, b"v" * 500), record(b"v", PARENT)], codec)
    assert (link.trace_id, link.span_id, int(link.trace_flags), link.is_remote) == (TRACE_ID, SPAN_ID, 1, True)


@pytest.mark.parametrize("codec", list(Codec))
def test_without_a_header_there_is_no_link(codec: Codec) -> None:
    plain = NewRecord(b"traceparent", b"traceparent " + PARENT, headers=(("trace", PARENT), ("traceparents", PARENT)))
    assert found([plain], codec) == []


@pytest.mark.parametrize("decoys", [0, 1, 7, 8, 9, 300])
def test_a_header_is_found_behind_many_bytes_like_its_first(decoys: int) -> None:
    values = [NewRecord(None, b"\x16" * decoys), record(b"\x16" * decoys, PARENT)]
    assert found(values) == [(TRACE_ID, SPAN_ID)]
    assert found(values[:1]) == []


@pytest.mark.parametrize("records", [b"", bytes(5), b"\x16", b"\x16t", b"x\x16t", b"\x16traceparent\x6e"])
def test_a_few_bytes_hold_no_link(records: bytes) -> None:
    """Old formats have no headers, and give no bytes to search."""
    assert links_of(records) == []


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        PARENT[:-1],
        PARENT + b"0",
        PARENT.upper(),
        b"ff" + PARENT[2:],
        PARENT.replace(b"-", b"_"),
        f"00-{0:032x}-{SPAN_ID:016x}-01".encode(),
        f"00-{TRACE_ID:032x}-{0:016x}-01".encode(),
        bytes(55),
    ],
)
def test_a_malformed_value_is_ignored(value: bytes | None) -> None:
    assert found([record(b"v", value), record(b"v", PARENT)]) == [(TRACE_ID, SPAN_ID)]


def test_the_same_context_is_one_link_and_many_are_cut() -> None:
    assert found([record(b"v", PARENT)] * 50) == [(TRACE_ID, SPAN_ID)]
    many = [record(b"v", f"00-{number:032x}-{number:016x}-01".encode()) for number in range(1, 50)]
    assert found(many) == [(number, number) for number in range(1, MAX_LINKS + 1)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("at", [0, 1, 500, 998, 1000])
def test_one_record_of_a_large_batch_is_enough(at: int, codec: Codec) -> None:
    records = [NewRecord(b"k", b"v" * 1000)] * 1000
    assert found([*records[:at], record(b"v", PARENT), *records[at:]], codec) == [(TRACE_ID, SPAN_ID)]


def test_the_header_of_a_large_record_is_found_at_its_end() -> None:
    assert found([record(b"v" * 900_000, PARENT)]) == [(TRACE_ID, SPAN_ID)]
