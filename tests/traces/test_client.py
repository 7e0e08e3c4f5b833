"""`JaegerClient` where a server answers badly, or holds what it cannot read."""

from typing import Any

import pytest
from answers import answering, speaking
from sample_traces import otlp, produce_trace

from traces.client import JaegerClient
from traces.errors import JaegerError, TraceFormatError

NOW_US = 1_790_000_000_000_000


@pytest.mark.parametrize(
    "said",
    [
        b"220 mail.example ESMTP\r\n",
        b"\x00\x01\x02",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 50\r\n\r\nno",
        b"HTTP/1.1 200 OK\r\n\r\n{",
    ],
)
def test_a_port_that_is_no_jaeger_is_one_error_that_says_so(said: bytes) -> None:
    with speaking(said) as url:
        with pytest.raises(JaegerError, match=url):
            JaegerClient(url).search("gateway")
        with pytest.raises(JaegerError, match=url):
            JaegerClient(url).trace("ab" * 16)


@pytest.mark.parametrize("answer", [{}, {"data": 5}, {"data": {"a": 1}}])
def test_an_answer_without_its_list_is_an_error_that_names_the_address(answer: Any) -> None:
    with answering({"/api/services": answer, "/api/traces": answer}) as url:
        for ask in (JaegerClient(url).services, lambda: JaegerClient(url).search("gateway")):
            with pytest.raises(JaegerError, match="no list of data"):
                ask()


def damaged_otlp(good: Any, bad: Any) -> dict[str, Any]:
    document = otlp([good, bad], end_us=NOW_US)
    for resource in document["resourceSpans"]:
        for span in resource["scopeSpans"][0]["spans"]:
            if span["traceId"] == bad["traceID"]:
                span["startTimeUnixNano"] = "yesterday"
    return document


@pytest.mark.parametrize("api", ["v1", "v3"])
def test_one_trace_that_cannot_be_read_is_named_and_hides_no_other(api: str) -> None:
    good, bad = produce_trace(1), produce_trace(2)
    if api == "v3":
        answers: dict[str, Any] = {
            "/api/v3/services": {"services": ["s"]},
            "/api/v3/traces": {"result": damaged_otlp(good, bad)},
        }
        answers[f"/api/v3/traces/{bad['traceID']}"] = answers["/api/v3/traces"]
    else:
        answers = {"/api/traces": {"data": [{**bad, "processes": {}}, good]}}
        answers[f"/api/traces/{bad['traceID']}"] = answers["/api/traces"]
    with answering(answers) as url:
        with pytest.warns(UserWarning, match=f"trace {bad['traceID']} of {url}") as said:
            found = JaegerClient(url).search("s")
        with pytest.raises(TraceFormatError, match=f"trace {bad['traceID']} of {url}"):
            JaegerClient(url).trace(bad["traceID"])
    assert [trace.trace_id for trace in found] == [good["traceID"]]
    assert len(found[0]) == 7
    assert len(said) == 1
