"""Widgets from the kernel's side: what they hold, what a button does, and their static form."""

import time
from collections.abc import Callable, Iterator

import pytest

from lab.widgets import ClusterPanel, TopicBrowser, TraceViewer, WalMap
from rafka_lab import Lab
from traces.names import PRODUCE_CHAIN


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def state_of(panel: ClusterPanel, node: str) -> str:
    return str(next(line["state"] for line in panel.nodes if line["name"] == node))


def test_the_panel_follows_the_cluster_and_its_buttons_work(lab: Lab) -> None:
    panel = ClusterPanel(lab)
    assert panel.facts["bootstrap"] == lab.bootstrap
    panel._on_message(panel, {"action": "kill", "node": "broker-0"}, [])
    wait_until(lambda: state_of(panel, "broker-0") == "killed")
    panel._on_message(panel, {"action": "start", "node": "broker-0"}, [])
    wait_until(lambda: state_of(panel, "broker-0") == "running")
    panel._on_message(panel, {"action": "pause", "node": "broker-0"}, [])
    wait_until(lambda: state_of(panel, "broker-0") == "paused")
    panel._on_message(panel, {"action": "resume", "node": "broker-0"}, [])
    wait_until(lambda: state_of(panel, "broker-0") == "running")
    lab.produce("t", ["a"] * 10)
    wait_until(lambda: next(node for node in panel.nodes if node["name"] == "broker-0")["records"] == 10)
    assert lab.faults.timeline()["fault"].tolist() == ["kill", "restart", "pause", "resume"]
    lab.stop()
    wait_until(lambda: state_of(panel, "gateway") == "stopped")
    assert panel.facts == {}
    panel.close()


def test_a_button_that_cannot_work_says_why(lab: Lab) -> None:
    panel = ClusterPanel(lab)
    lab.faults.kill()
    panel.act("pause", "broker-0")
    assert "broker-0 is killed: only a node that is running can pause" in panel.trouble
    assert lab.faults.timeline()["fault"].tolist() == ["kill"]  # what did not happen is not in it
    panel.act("kill", "broker-9")
    assert "broker-9" in panel.trouble
    panel.close()


def test_every_widget_has_a_static_form_without_a_kernel(cluster: Lab, topic: str) -> None:
    sent = cluster.produce(topic, [{"value": "<script>alert(1)</script>", "partition": 0}], linger_ms=0)
    trace = cluster.traces.of(sent.iloc[0])
    widgets = {
        ClusterPanel(cluster): cluster.bootstrap,
        WalMap(cluster.wal): topic,
        TopicBrowser(cluster, topic): "&lt;script&gt;alert(1)&lt;/script&gt;",
        TraceViewer([trace]): trace.trace_id,
    }
    for widget, expected in widgets.items():
        data, _ = widget._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in data
        assert expected in data["text/html"], type(widget)
        assert "<script>alert" not in data["text/html"], type(widget)
        widget.close()


def test_the_browser_shows_the_newest_page_and_turns_back(cluster: Lab, topic: str) -> None:
    cluster.produce(topic, [{"value": str(number), "partition": 0} for number in range(50)])
    browser = TopicBrowser(cluster, topic)
    assert browser.view == {"topic": topic, "partition": 0, "offset": 30, "low": 0, "high": 50}
    assert [record["value"] for record in browser.records] == [str(number) for number in range(30, 50)]
    browser._on_message(browser, {"topic": topic, "partition": 0, "offset": 10}, [])
    assert browser.records[0]["value"] == "10"
    browser._on_message(browser, {"topic": topic, "partition": 1, "offset": None}, [])
    assert browser.records == []
    browser.show("nowhere")
    assert "no topic 'nowhere'" in browser.trouble
    browser.close()


def test_the_map_shows_what_each_segment_holds(cluster: Lab, topic: str) -> None:
    cluster.produce(topic, [{"value": "x" * 100, "partition": 0}] * 20)
    wal = WalMap(cluster.wal)
    part = next(part for part in wal.contents if part["topic"] == topic)
    assert (part["first_offset"], part["next_offset"]) == (0, 20)
    cluster.produce(topic, [{"value": "x", "partition": 0}])
    wal._on_message(wal, {"action": "refresh"}, [])
    assert next(part for part in wal.contents if part["topic"] == topic)["next_offset"] == 21
    wal.close()


def test_the_viewer_holds_the_trace_as_jaeger_writes_it(cluster: Lab, topic: str) -> None:
    trace = cluster.traces.of(cluster.produce(topic, "x", linger_ms=0).iloc[0])
    viewer = TraceViewer([trace])
    [document] = viewer.traces
    assert document["traceID"] == trace.trace_id
    assert sorted(span["operationName"] for span in document["spans"]) == sorted(PRODUCE_CHAIN)
    viewer.close()
