"""When a trace is all there: by its chain, or because it has not grown for a while."""

from itertools import count

import pytest

from traces import names
from traces.arrival import SETTLED_SECONDS, Arrival, is_whole
from traces.model import Span, Trace

# Span, parent: a produce to two brokers.
TWO_BROKERS = [
    (names.GATEWAY_CONNECT, None),
    (names.GATEWAY_REQUEST, 0),
    *[
        (name, parent + offset if parent > 1 else parent)
        for offset in (0, 5)
        for name, parent in (
            (names.MESH_SENT, 1),
            (names.MESH_HANDLE, 2),
            (names.PRODUCE_STORE, 3),
            (names.ACK, 3),
            (names.ACK_RECEIVED, 2),
        )
    ],
]


def trace(shape: list[tuple[str, int | None]], without: tuple[int, ...] = ()) -> Trace:
    spans = [
        Span(
            trace_id="1" * 32,
            span_id=f"{number:016x}",
            parent_id=None if parent is None else f"{parent:016x}",
            name=name,
            service="s",
            start_ns=number,
            end_ns=number + 1,
        )
        for number, (name, parent) in enumerate(shape)
    ]
    return Trace("1" * 32, [span for number, span in enumerate(spans) if number not in without])


def test_a_request_is_whole_with_the_answers_of_all_its_brokers() -> None:
    assert is_whole(trace(TWO_BROKERS))
    assert is_whole(trace(TWO_BROKERS[:7]))
    assert [at for at in range(12) if is_whole(trace(TWO_BROKERS, without=(at,)))] == []
    assert not is_whole(trace(TWO_BROKERS, without=tuple(range(8, 12))))


def test_a_request_that_the_gateway_answered_is_whole_with_two_spans() -> None:
    assert is_whole(trace(TWO_BROKERS[:2]))
    assert not is_whole(trace(TWO_BROKERS[:1]))
    assert not is_whole(trace([]))


@pytest.mark.parametrize("shape", [[("theirs", None)], [*TWO_BROKERS[:3]]])
def test_a_trace_whose_names_do_not_tell_is_over_when_it_stopped_growing(shape: list[tuple[str, int | None]]) -> None:
    arrival = Arrival()
    grown = [*shape, ("theirs", 0)]
    moments = count(100.0, SETTLED_SECONDS * 0.6)
    assert not arrival.is_over(trace(shape), next(moments))
    assert not arrival.is_over(trace(grown), next(moments))
    assert not arrival.is_over(trace(grown), next(moments))
    assert arrival.is_over(trace(grown), next(moments))


def test_a_trace_whose_parents_are_still_missing_is_waited_for() -> None:
    arrival = Arrival()
    parts = trace(TWO_BROKERS, without=(0,))
    assert not arrival.is_over(parts, 0.0)
    assert not arrival.is_over(parts, 100.0)
