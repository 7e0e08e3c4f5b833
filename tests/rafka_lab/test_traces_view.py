"""The traces of a lab: of a record, the last one, those that fit, two side by side."""

import time

import pytest

from rafka_lab import Lab
from rafka_lab.errors import NoTracesError
from rafka_lab.frames import jaeger_frame, proxied
from rafka_lab.traces_view import Traces
from traces import names

API_VERSIONS = 18
PATIENCE = 30.0


def test_a_record_leads_to_its_trace_and_back(shared_lab: Lab, topic: str) -> None:
    sent = shared_lab.produce(topic, "x", linger_ms=0)
    trace = shared_lab.traces.of(sent.iloc[0])
    trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
    store = trace.find(names.PRODUCE_STORE)[0]
    assert store.attributes[names.KAFKA_TOPIC] == topic
    assert store.attributes[names.MESSAGING_OFFSET] == sent["offset"].iloc[0]
    assert shared_lab.wal.frame(topic)["trace_id"].tolist() == [trace.trace_id]


def test_traces_are_found_by_what_they_are_about(shared_lab: Lab, topic: str) -> None:
    wanted = {shared_lab.produce(topic, "x", linger_ms=0)["trace_id"].iloc[0] for _ in range(3)}
    for trace_id in wanted:
        shared_lab.traces.get(trace_id)
    assert {trace.trace_id for trace in shared_lab.traces.find("produce", topic=topic)} == wanted
    assert shared_lab.traces.find("produce", topic=topic, min_ms=60_000) == []
    assert shared_lab.traces.last("produce").find(names.PRODUCE_STORE)
    shared_lab.fetch(topic)
    assert shared_lab.traces.last("fetch").find(names.FETCH_READ)


def test_two_traces_are_compared_hop_by_hop(shared_lab: Lab, topic: str) -> None:
    first, second = (shared_lab.traces.of(shared_lab.produce(topic, "x", linger_ms=0).iloc[0]) for _ in range(2))
    both = shared_lab.traces.compare(first, second)
    assert both["hop"].tolist() == list(names.PRODUCE_CHAIN)
    store = both.set_index("hop").loc[names.PRODUCE_STORE]
    assert store["difference_ms"] == pytest.approx(store["second_ms"] - store["first_ms"])
    assert store["first_ms"] == pytest.approx(first.find(names.PRODUCE_STORE)[0].duration_ms)


def test_what_has_no_trace_is_said(shared_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoTracesError, match="no trace"):
        shared_lab.traces.get("0" * 31 + "1", wait=0)
    with pytest.raises(NoTracesError, match="not traced"):
        shared_lab.traces.of({"trace_id": None})
    with pytest.raises(NoTracesError, match="no kind 'lunch'"):
        shared_lab.traces.last("lunch")
    monkeypatch.delenv("JAEGER_URL", raising=False)
    assert not Traces("").available
    with pytest.raises(NoTracesError, match="JAEGER_URL"):
        Traces("").last()
    for ask in (Traces("http://127.0.0.1:1").last, lambda wait: Traces("http://127.0.0.1:1").get("ab" * 16, wait)):
        with pytest.raises(NoTracesError, match="no Jaeger API answers"):
            ask(wait=0)


def test_the_viewer_is_framed_and_a_real_jaeger_too(shared_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTERHUB_SERVICE_PREFIX", raising=False)
    monkeypatch.delenv("JAEGER_URL", raising=False)
    assert str(shared_lab.jaeger()) == f"{shared_lab.traces_url}/"
    assert f'src="{shared_lab.traces_url}/"' in shared_lab.jaeger()._repr_html_()
    monkeypatch.setenv("JAEGER_URL", "http://127.0.0.1:16686")
    assert str(jaeger_frame(Traces(None), real=True)) == "http://127.0.0.1:16686/search?uiEmbed=v0"


def test_a_remote_notebook_goes_through_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ann/")
    assert proxied("http://127.0.0.1:16686") == "/user/ann/proxy/16686"
    assert proxied("http://jaeger.lan:80/ui") == "/user/ann/proxy/jaeger.lan:80/ui"
    monkeypatch.delenv("JUPYTERHUB_SERVICE_PREFIX")
    monkeypatch.setenv("RAFKA_LAB_PROXY", "1")
    assert proxied("http://127.0.0.1:5000/") == "/proxy/5000"


def test_a_request_that_the_gateway_answers_itself_is_not_waited_for(shared_lab: Lab, topic: str) -> None:
    shared_lab.traces.of(shared_lab.produce(topic, "x", linger_ms=0).iloc[0])
    local = shared_lab.traces.find(tags={names.KAFKA_API_KEY: API_VERSIONS})[0]
    began = time.monotonic()
    whole = shared_lab.traces.get(local.trace_id, PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    whole.assert_chain(names.LOCAL_CHAIN)


def test_what_shows_the_traces_says_how_many_spans_were_lost() -> None:
    with Lab(environment={"OTEL_BSP_MAX_QUEUE_SIZE": "1", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"}) as lab:
        assert "dropped" not in repr(lab.traces)
        lab.produce("t", [str(number) for number in range(200)], linger_ms=0)
        end = time.monotonic() + PATIENCE
        while "spans dropped by recorders: " not in repr(lab.traces):
            assert time.monotonic() < end, repr(lab.traces)
            time.sleep(0.1)
        url = lab.traces_url
    assert "no Jaeger API answers" in repr(Traces(url))
