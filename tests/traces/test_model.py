"""`Trace` and `Span`: trees of whole and of damaged traces, chains, critical paths, formats."""

import json
import math
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_traces import produce_trace

from traces import errors, jaeger_json, names
from traces.errors import ChainError, TraceFormatError
from traces.model import Event, Span, SpanLink, Trace

TRACE_ID = "0" * 31 + "1"


def span(number: int, parent: int | None, start: int, end: int, name: str = "", service: str = "s") -> Span:
    return Span(
        trace_id=TRACE_ID,
        span_id=f"{number:016x}",
        parent_id=None if parent is None else f"{parent:016x}",
        name=name or f"n{number}",
        service=service,
        start_ns=start * 1000,
        end_ns=end * 1000,
    )


def produce() -> list[Span]:
    shape = [
        (1, None, 0, 100),
        (2, 1, 5, 95),
        (3, 2, 10, 90),
        (4, 3, 20, 60),
        (5, 4, 25, 50),
        (6, 4, 55, 58),
        (7, 3, 80, 82),
    ]
    return [span(*numbers, name=name) for numbers, name in zip(shape, names.PRODUCE_CHAIN, strict=True)]


def test_a_produce_has_its_chain_whatever_the_order_of_arrival() -> None:
    trace = Trace(TRACE_ID, reversed(produce()))
    assert trace.chain() == list(names.PRODUCE_CHAIN)
    trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
    assert trace.root.name == names.GATEWAY_CONNECT
    assert [found.span_id for found in trace.find(names.ACK)] == [f"{6:016x}"]
    assert trace.depth(trace.find(names.PRODUCE_STORE)[0]) == 4


def test_another_chain_shows_the_difference() -> None:
    spans = [item for item in produce() if item.name != names.PRODUCE_STORE]
    spans.append(span(9, 4, 26, 27, "surprise"))
    with pytest.raises(ChainError) as caught:
        Trace(TRACE_ID, spans).assert_chain(names.PRODUCE_CHAIN)
    said = str(caught.value)
    assert f"- {names.PRODUCE_STORE}  (missing)" in said
    assert "+ surprise  (not expected here)" in said
    assert f"    {names.MESH_HANDLE}" in said
    assert isinstance(caught.value, AssertionError)


def test_a_span_under_the_wrong_parent_is_named() -> None:
    spans = produce()
    spans[6] = span(7, 4, 80, 82, names.ACK_RECEIVED)
    trace = Trace(TRACE_ID, spans)
    trace.assert_chain(names.PRODUCE_CHAIN)
    with pytest.raises(ChainError, match=f"{names.ACK_RECEIVED} lies under {names.MESH_HANDLE}"):
        trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)


def test_duplicates_are_kept_once() -> None:
    trace = Trace(TRACE_ID, [*produce(), *produce()])
    assert (len(trace), trace.duplicates) == (7, 7)


def test_a_span_without_its_parent_is_an_orphan_and_the_true_root_stays_the_root() -> None:
    trace = Trace(TRACE_ID, [span(3, 99, 0, 5), span(1, None, 10, 20), span(2, 1, 11, 12)])
    assert trace.root.name == "n1"
    assert [orphan.name for orphan in trace.orphans] == ["n3"]
    assert len(trace) == 3
    assert Trace(TRACE_ID, [span(3, 99, 0, 5)]).root.name == "n3"


def test_a_child_before_its_parent_is_named_and_keeps_the_path_within_the_root() -> None:
    trace = Trace(TRACE_ID, [span(1, None, 100, 200), span(2, 1, 50, 150)])
    assert [found.name for found in trace.skewed] == ["n2"]
    assert [(found.name, own) for found, own in trace.critical_path()] == [("n2", 50_000), ("n1", 50_000)]


def test_parents_in_a_circle_are_shown_and_end() -> None:
    trace = Trace(TRACE_ID, [span(1, 2, 0, 9), span(2, 1, 1, 8), span(3, 3, 2, 4), span(4, 2, 3, 4)])
    assert {found.name for found in trace.spans} == {"n1", "n2", "n3", "n4"}
    assert trace.critical_path()
    assert str(trace)


def test_the_critical_path_is_what_the_end_waited_for() -> None:
    #  root 0-100: a 10-40, then b 30-80 with c 50-70 in it; nothing after 80. What a did, b did not wait for.
    trace = Trace(TRACE_ID, [span(1, None, 0, 100), span(2, 1, 10, 40), span(3, 1, 30, 80), span(4, 3, 50, 70)])
    path = [(found.name, own // 1000) for found, own in trace.critical_path()]
    assert path == [("n1", 30), ("n3", 20), ("n4", 20), ("n3", 10), ("n1", 20)]


def test_the_critical_path_goes_on_after_a_parent_that_ends_early() -> None:
    sample = jaeger_json.trace_of(produce_trace())
    path = [(found.name, own // 1000) for found, own in sample.critical_path()]
    # Of `sample_traces.PRODUCE`, from the first start to the last end, and as the viewer draws it.
    assert path == [
        ("gateway.kafka.connect", 130),
        ("gateway.kafka.request", 180),
        ("mesh.kafkaop.sent", 210),
        ("mesh.kafkaop.handle", 120),
        ("broker.produce.store", 790),
        ("mesh.kafkaop.handle", 20),
        ("kafkaop.ack", 160),
        ("mesh.kafkaop.handle", 40),
        ("mesh.kafkaop.sent", 130),
        ("kafkaop.ack_received", 110),
        ("mesh.kafkaop.sent", 60),
        ("gateway.kafka.request", 230),
    ]
    assert sum(own for _, own in path) == 2_180


def test_of_children_that_outlive_their_parent_the_last_one_counts() -> None:
    trace = Trace(TRACE_ID, [span(1, None, 0, 10), span(2, 1, 5, 30), span(3, 1, 20, 50), span(4, 1, 60, 80)])
    path = [(found.name, own // 1000) for found, own in trace.critical_path()]
    assert path == [("n1", 5), ("n2", 5), ("n3", 30), ("n4", 20)]


SPANS = st.lists(
    st.tuples(st.integers(1, 12), st.none() | st.integers(1, 14), st.integers(0, 50), st.integers(-5, 50)), max_size=12
)


@given(SPANS)
def test_any_spans_make_a_trace(given_spans: list[tuple[int, int | None, int, int]]) -> None:
    spans = [span(number, parent, start, start + length) for number, parent, start, length in given_spans]
    trace = Trace(TRACE_ID, spans)
    assert {found.span_id for found in trace.spans} == {found.span_id for found in spans}
    assert len(trace) + trace.duplicates == len(spans)
    path = trace.critical_path()
    outlived = any(trace.parent(found) and found.end_ns > trace.parent(found).end_ns for found in trace.spans)
    covered = sum(own for _, own in path)
    assert covered <= trace.end_ns - min((found.start_ns for found in spans), default=0) or not covered
    assert outlived or covered == (trace.root.duration_ns if spans else 0)
    assert all(own >= 0 for _, own in path)
    again = Trace.from_json(trace.to_json())
    assert {(found.span_id, found.name) for found in again.spans} == {
        (found.span_id, found.name) for found in trace.spans
    }


def test_a_wide_trace_is_quick() -> None:
    children = [span(number, 1, number, number + 1) for number in range(2, 10_002)]
    trace = Trace(TRACE_ID, [span(1, None, 0, 10_010), *children])
    assert len(trace.critical_path()) >= 10_000


def full_span() -> Span:
    return Span(
        trace_id=TRACE_ID,
        span_id="00000000000000aa",
        parent_id="00000000000000bb",
        name="work",
        service="node",
        kind="client",
        start_ns=5000,
        end_ns=9000,
        attributes={"text": "ü", "count": 3, "real": 0.5, "yes": True, "raw": b"\x00\xff"},
        events=(Event(6000, "happened", {"k": "v"}),),
        links=(SpanLink("f" * 32, "e" * 16),),
        error=True,
        status="broken",
        resource={"service.name": "node", "zone": "a"},
        scope="tests",
    )


def test_jaegers_json_keeps_all_of_a_span() -> None:
    assert Trace.from_json(Trace(TRACE_ID, [full_span()]).to_json()).spans == (full_span(),)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_has_not_survive_it(number: float) -> None:
    odd = replace(full_span(), attributes={"real": number, "many": [1.0, number]}, resource={"service.name": "node"})
    text = Trace(TRACE_ID, [replace(odd, events=(Event(6000, "e", {"k": number}),))]).to_json()
    json.loads(text, parse_constant=pytest.fail)
    [again] = Trace.from_json(text).spans
    assert str(again.attributes["real"]) == str(again.events[0].attributes["k"]) == str(number)


def test_jaegers_json_is_what_its_ui_takes() -> None:
    document = json.loads(Trace(TRACE_ID, [full_span()]).to_json())["data"][0]
    (given_span,) = document["spans"]
    assert (given_span["startTime"], given_span["duration"]) == (5, 4)
    assert given_span["references"][0] == {"refType": "CHILD_OF", "traceID": TRACE_ID, "spanID": "00000000000000bb"}
    assert document["processes"][given_span["processID"]]["serviceName"] == "node"
    assert {"key": "error", "type": "bool", "value": True} in given_span["tags"]


def test_ids_without_leading_zeros_are_read() -> None:
    document = json.loads(Trace(TRACE_ID, [full_span()]).to_json())
    document["data"][0]["traceID"] = document["data"][0]["spans"][0]["traceID"] = "1"
    document["data"][0]["spans"][0]["spanID"] = "aa"
    assert Trace.from_json(json.dumps(document)).spans[0].span_id == "00000000000000aa"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"data": 1}',
        '{"data": [{}]}',
        '{"data": [{"traceID": "x", "spans": [], "processes": {}}]}',
        "[1]",
    ],
)
def test_documents_that_are_no_trace_are_refused(text: str) -> None:
    with pytest.raises(TraceFormatError):
        Trace.from_json(text)


def test_a_dataframe_has_a_row_a_span_and_a_column_an_attribute() -> None:
    frame = Trace(TRACE_ID, [*produce(), full_span()]).to_dataframe()
    assert list(frame["name"][:7]) == list(names.PRODUCE_CHAIN)
    assert frame["count"].dropna().tolist() == [3]
    assert frame["critical_ms"].sum() == pytest.approx(0.1)
    assert Trace(TRACE_ID, []).to_dataframe().empty


def test_an_attribute_called_as_a_column_of_the_trace_has_a_column_of_its_own() -> None:
    named = replace(
        full_span(), attributes={"name": "bob", "status": 7, "kind": 1, "attribute.kind": 2, "attribute.attribute.x": 3}
    )
    row = Trace(TRACE_ID, [named]).to_dataframe().iloc[0]
    assert (row["name"], row["status"], row["kind"]) == ("work", "broken", "client")
    assert (row["attribute.name"], row["attribute.status"]) == ("bob", 7)
    assert (row["attribute.attribute.kind"], row["attribute.kind"], row["attribute.attribute.x"]) == (1, 2, 3)


def test_errors_survive_pickling() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.TracesError):
            assert str(pickle.loads(pickle.dumps(kind("what happened")))) == "what happened"


def test_importing_the_model_does_not_load_pandas() -> None:
    import subprocess
    import sys

    check = "import sys, traces.model, traces.client; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


@given(st.binary(max_size=80) | st.text(max_size=80))
def test_any_text_is_read_or_refused(text: bytes | str) -> None:
    try:
        found = jaeger_json.read_traces(text)
    except TraceFormatError:
        return
    assert isinstance(found, list)
