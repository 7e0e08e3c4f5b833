"""`OTEL_*` variables of the user's shell: they are respected, and a lab says what they do to its traces."""

import pytest

from rafka_lab import Lab
from rafka_lab.errors import NoTracesError
from rafka_lab.otel_environment import why_no_traces
from traces import names

OTLP = "http://127.0.0.1:4318"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


@pytest.fixture(autouse=True)
def plain_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ENDPOINT, TRACES_ENDPOINT, "OTEL_TRACES_SAMPLER", "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)


def test_spans_that_go_elsewhere_are_announced_at_the_start_and_wherever_nothing_is_found(
    shared_lab: Lab, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ENDPOINT, shared_lab.traces_url)
    with Lab() as lab:
        said = capsys.readouterr().err
        trace_id = lab.produce(topic, "x", linger_ms=0)["trace_id"].iloc[0]
        with pytest.raises(NoTracesError, match=ENDPOINT):
            lab.traces.last(wait=0)
        with pytest.raises(NoTracesError, match=ENDPOINT):
            lab.traces.get(trace_id, wait=0)
        with pytest.raises(NoTracesError, match=ENDPOINT), pytest.warns(UserWarning, match=ENDPOINT):
            lab.traces.frame()
        assert ENDPOINT in repr(lab.traces)
    assert said.startswith("rafka-lab: warning: ")
    assert f"{shared_lab.traces_url}/v1/traces" in said
    assert ENDPOINT in said
    assert "lab.traces stays empty" in said
    shared_lab.traces.get(trace_id).assert_chain(names.PRODUCE_CHAIN)


def test_an_empty_variable_of_the_lab_keeps_the_spans_here(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    with Lab(environment={ENDPOINT: ""}) as lab:
        assert capsys.readouterr().err == ""
        lab.traces.of(lab.produce(topic, "x", linger_ms=0).iloc[0]).assert_chain(names.PRODUCE_CHAIN)


@pytest.mark.parametrize("sampler", ["", "always_on"])
def test_a_ratio_of_0_traces_nothing_whatever_the_endpoint_says_unless_a_sampler_is_named(
    sampler: str, shared_lab: Lab, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, shared_lab.traces_url)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    with Lab(trace_ratio=0) as lab:
        lab.produce(topic, "x", linger_ms=0)
    # The nodes have sent all of their spans before they ended.
    assert len(shared_lab.traces.find("produce", topic=topic)) == (1 if sampler else 0)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({ENDPOINT: " "}, ""),
        ({ENDPOINT: OTLP + "/"}, ""),
        ({TRACES_ENDPOINT: OTLP + "/v1/traces", ENDPOINT: "http://elsewhere:4318"}, ""),
        (
            {TRACES_ENDPOINT: "http://here/x", ENDPOINT: OTLP},
            "spans go to http://here/x, because OTEL_EXPORTER_OTLP_TR",
        ),
        ({ENDPOINT: "https://there"}, "spans go to https://there/v1/traces, because OTEL_EXPORTER_OTLP_ENDPOINT"),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED is 'true'"),
        ({"OTEL_SDK_DISABLED": "false", "OTEL_TRACES_EXPORTER": "none"}, "OTEL_TRACES_EXPORTER is 'none'"),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, "OTEL_TRACES_SAMPLER is 'parentbased_always_off'"),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"}, ""),
        ({"RAFKA_TRACES": "off", ENDPOINT: "http://there"}, "RAFKA_TRACES is 'off'"),
        ({ENDPOINT: "nonsense"}, ""),
    ],
)
def test_the_variable_that_keeps_the_store_empty_is_named(environ: dict[str, str], said: str) -> None:
    found = why_no_traces(OTLP, environ)
    assert said in found
    assert bool(said) == bool(found)
