"""The trace viewer in a real Chromium: what a person sees, clicks and types, and what a hostile trace cannot do."""

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from sample_traces import PRODUCE, large_trace, otlp, produce_trace, skewed_trace, span, tag, trace

from lab.widgets.trace_viewer import TraceViewer
from traces import jaeger_json
from traces.viewer import static_html

NAMES = [row[0] for row in PRODUCE]
# Rows in the document for a trace of any length: those that fit the window, and a margin for scrolling.
ROW_BOUND = 80

# The ends of the shown time range, for scripts in the page.
HANDLES = "document.querySelectorAll('.rtv-map-handle')"

NewPage = Callable[..., Any]
Keep = Callable[[Any, str], None]


@pytest.fixture
def show(new_page: NewPage, tmp_path: Path) -> Callable[..., Any]:
    """`show(trace)` opens the static page of a trace, or of several, and waits until it is drawn."""

    def open_page(traces: Any, *, color_scheme: str = "light", **options: Any) -> Any:
        path = tmp_path / "trace.html"
        path.write_text(static_html(traces, **options), "utf-8")
        page = new_page(color_scheme=color_scheme)
        page.goto(path.as_uri())
        page.wait_for_selector(".rtv-panel, .rtv-state")
        return page

    return open_page


def row(page: Any, name: str) -> Any:
    return page.get_by_role("treeitem", name=name)


def range_of(page: Any) -> tuple[float, float]:
    handles = page.locator(".rtv-map-handle")
    return float(handles.nth(0).get_attribute("aria-valuenow")), float(handles.nth(1).get_attribute("aria-valuenow"))


def drag(page: Any, selector: str, start: float, end: float) -> None:
    box = page.locator(selector).bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * start, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * end, middle, steps=4)
    page.mouse.up()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_produce_trace_shows_seven_nested_spans_and_its_record(show: Any, keep: Keep, scheme: str) -> None:
    page = show(produce_trace(), color_scheme=scheme)
    rows = page.locator("[role=treeitem]")
    assert rows.locator(".rtv-op").all_inner_texts() == NAMES
    assert [item.get_attribute("aria-level") for item in rows.all()] == ["1", "2", "3", "4", "5", "5", "4"]
    chip = page.locator(".rtv-title-line .rtv-record")
    assert chip.inner_text().split() == ["record", "orders", "partition", "3", "offset", "40961"]
    assert page.locator(".rtv").get_attribute("data-theme") == scheme
    colours = {item.evaluate("e => getComputedStyle(e).backgroundColor") for item in page.locator(".rtv-bar").all()}
    assert len(colours) == 2, "one colour for each of the two services"
    keep(page, "timeline")
    chip.click()
    assert page.locator(".rtv-detail h3").inner_text() == "broker.produce.store"
    keep(page, "record")


def test_a_produce_to_several_partitions_names_each_record_but_no_refused_one(show: Any) -> None:
    produced = produce_trace()
    store = produced["spans"][4]
    store["tags"] = [found for found in store["tags"] if found["key"] != "messaging.batch.message_count"]
    store["tags"].append(tag("messaging.batch.message_count", 9))
    for partition, offset, error in ((4, 17, 0), (5, -1, 56)):
        fields = [tag("event", "partition"), tag("kafka.topic", "orders"), tag("kafka.partition", partition)]
        fields += [tag("messaging.kafka.offset", offset), tag("kafka.error_code", error)]
        store["logs"].append({"timestamp": store["startTime"], "fields": fields})
    page = show(produced)
    assert page.locator(".rtv-title-line .rtv-record-offset").all_inner_texts() == ["offset 40961", "offset 17"]
    assert page.locator("h2").first.inner_text().startswith("produce orders")


def test_a_click_on_a_span_shows_attributes_events_and_process(show: Any) -> None:
    page = show(produce_trace())
    row(page, "broker.produce.store").click()
    detail = page.locator(".rtv-detail")
    attributes = {
        line.locator("th").inner_text(): line.locator("td").inner_text()
        for line in detail.get_by_role("table", name="Attributes").locator("tr").all()
    }
    assert attributes["messaging.destination.name"] == "orders"
    assert attributes["messaging.kafka.offset"] == "40961"
    assert detail.locator(".rtv-event-head b").all_inner_texts() == ["wal.appended", "wal.synced"]
    detail.get_by_text("Process").click()
    assert "broker-1" in detail.get_by_role("table", name="Process").inner_text()
    detail.get_by_role("button", name="mesh.kafkaop.handle").click()
    assert detail.locator("h3").inner_text() == "mesh.kafkaop.handle"


def test_the_critical_path_covers_the_trace_though_connect_ends_early_and_can_be_hidden(show: Any) -> None:
    page = show(produce_trace())
    cell = page.locator(".rtv-cell-time").first.bounding_box()["width"]
    covered = sum(mark.bounding_box()["width"] for mark in page.locator(".rtv-crit").all())
    assert covered == pytest.approx(cell, rel=0.02)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Critical path").click()
    assert page.locator(".rtv-crit").count() == 0


def test_the_keyboard_walks_folds_and_opens_the_tree(show: Any, keep: Keep) -> None:
    page = show(produce_trace())
    tree = page.get_by_role("tree")
    tree.focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    active = tree.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active} .rtv-op").inner_text() == NAMES[3]
    page.keyboard.press("ArrowLeft")
    assert page.locator("[role=treeitem]").count() == 5
    assert row(page, NAMES[3]).get_attribute("aria-expanded") == "false"
    page.keyboard.press("e")
    assert page.locator("[role=treeitem]").count() == 7
    page.keyboard.press("Enter")
    assert page.locator(".rtv-detail h3").inner_text() == NAMES[3]
    page.keyboard.press("Escape")
    assert not page.locator(".rtv-detail").is_visible()
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    keep(page, "help")
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()


def name_of_selected(page: Any) -> str:
    return str(page.locator(".rtv-sel .rtv-op").inner_text())


def test_links_are_in_the_detail_and_lead_to_other_traces_and_spans(show: Any, keep: Keep) -> None:
    first, second = produce_trace(1), produce_trace(2)
    connect, request = first["spans"][:2]
    target = second["spans"][4]
    within = {"refType": "FOLLOWS_FROM", "traceID": first["traceID"], "spanID": first["spans"][5]["spanID"]}
    beyond = {"refType": "FOLLOWS_FROM", "traceID": second["traceID"], "spanID": target["spanID"]}
    request["references"] += [within, beyond]
    page = show([first, second], trace_id=first["traceID"])
    row(page, "gateway.kafka.connect").click()
    links = page.locator(".rtv-detail .rtv-section", has_text="Links")
    assert links.locator("summary").inner_text().split() == ["Links", "1"]
    assert links.locator(".rtv-tag").inner_text() == "follows from"
    nowhere = connect["references"][0]
    links.get_by_role("button", name=f"trace {nowhere['traceID']} span {nowhere['spanID']}").click()
    page.get_by_text(f"Trace {nowhere['traceID']} is not among the traces shown here.").wait_for()
    row(page, "gateway.kafka.request").click()
    assert links.locator(".rtv-link").count() == 2
    keep(page, "links")
    links.get_by_role("button", name=f"span {within['spanID']}").click()
    assert page.locator(".rtv-detail h3").inner_text() == name_of_selected(page) == "kafkaop.ack"
    assert links.locator("summary").inner_text().split() == ["Links", "0"]
    row(page, "gateway.kafka.request").click()
    links.get_by_role("button", name=f"trace {beyond['traceID']}").click()
    page.locator(".rtv-trace-id", has_text=second["traceID"]).wait_for()
    assert page.locator(".rtv-detail h3").inner_text() == name_of_selected(page) == "broker.produce.store"


def test_a_link_is_followed_to_a_trace_that_only_the_store_has(new_page: NewPage, server: Any) -> None:
    linking, linked = produce_trace(1), produce_trace(2)
    linking["spans"][0]["references"] = [
        {"refType": "FOLLOWS_FROM", "traceID": linked["traceID"], "spanID": linked["spans"][0]["spanID"]}
    ]
    server.traces = [linking, linked]
    page = new_page()
    page.goto(f"{server.url}/#/trace/{linking['traceID']}?span={linking['spans'][0]['spanID']}")
    page.get_by_role("button", name=f"trace {linked['traceID']}").click()
    page.locator(".rtv-trace-id", has_text=linked["traceID"]).wait_for()
    assert page.url.endswith(f"#/trace/{linked['traceID']}?span={linked['spans'][0]['spanID']}")
    page.go_back()
    page.locator(".rtv-trace-id", has_text=linking["traceID"]).wait_for()


def test_the_keys_of_a_trace_do_what_the_help_says(show: Any) -> None:
    page = show(produce_trace())
    press = page.keyboard.press
    page.get_by_role("tree").focus()
    for _ in range(5):
        press("ArrowDown")
    assert name_of_selected(page) == "broker.produce.store"
    press("z")
    # 640 to 1,430 of 2,180 us, and a twentieth of its length on either side.
    assert range_of(page) == pytest.approx((27.5, 67.4), abs=0.2)
    press("Shift+ArrowRight")
    assert range_of(page) == pytest.approx((35.5, 75.4), abs=0.2)
    press("Shift+ArrowLeft")
    press("Shift+ArrowLeft")
    assert range_of(page) == pytest.approx((19.5, 59.4), abs=0.2)
    assert name_of_selected(page) == "broker.produce.store", "the arrows with Shift move the range only"
    press("0")
    assert range_of(page) == (0, 100)
    press("c")
    assert page.locator(".rtv-crit").count() == 0
    press("c")
    assert page.locator(".rtv-crit").count() > 0
    press("/")
    page.keyboard.type("kafkaop.ack")
    page.get_by_role("tree").focus()
    walked = []
    for key in ("n", "n", "n", "Shift+N"):
        press(key)
        walked.append(name_of_selected(page))
    assert walked == ["kafkaop.ack", "kafkaop.ack_received", "kafkaop.ack", "kafkaop.ack_received"]
    press("s")
    page.get_by_role("columnheader", name="Self").wait_for()
    press("s")
    assert page.get_by_role("tree").is_visible()
    press("Enter")
    assert page.locator(".rtv-detail h3").inner_text() == "kafkaop.ack_received"


def test_ctrl_and_the_wheel_zoom_at_the_pointer(show: Any) -> None:
    page = show(produce_trace())
    axis = page.locator(".rtv-axis").bounding_box()
    tree = page.get_by_role("tree").bounding_box()
    page.mouse.move(axis["x"] + axis["width"] * 0.25, tree["y"] + 40)
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    shown = 100 * 0.8**3
    # What is under the pointer stays there.
    expect(page.locator(".rtv-map-handle").nth(0)).not_to_have_attribute("aria-valuenow", "0")
    page.wait_for_function(f"() => {HANDLES}[1].ariaValueNow - {HANDLES}[0].ariaValueNow < {shown + 0.2}")
    assert range_of(page) == pytest.approx((25 - shown * 0.25, 25 + shown * 0.75), abs=0.3)
    page.mouse.wheel(0, 100)
    assert range_of(page)[1] - range_of(page)[0] == pytest.approx(shown, abs=0.2), "the wheel alone scrolls"


@pytest.mark.parametrize("place", ["trace", "list", "compare"])
def test_keys_that_work_anywhere_export_import_and_change_the_theme(show: Any, place: str) -> None:
    page = show([produce_trace(1), produce_trace(2)], mode=place)
    page.locator("[role=tree], [role=listbox]").first.focus()
    before = page.locator(".rtv").get_attribute("data-theme")
    page.keyboard.press("t")
    assert page.locator(".rtv").get_attribute("data-theme") != before
    chosen = "e => e.addEventListener('click', event => { event.preventDefault(); e.dataset.opened = 'yes'; })"
    page.locator("input[type=file]").evaluate(chosen)
    page.keyboard.press("i")
    assert page.locator("input[type=file]").get_attribute("data-opened") == "yes"
    with page.expect_download() as caught:
        page.keyboard.press("x")
    saved = json.loads(Path(caught.value.path()).read_text())["data"]
    assert len(saved) == (1 if place == "trace" else 2)
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()


def test_the_keys_of_the_list_and_the_comparison_do_what_the_help_says(new_page: NewPage, server: Any) -> None:
    server.traces = [produce_trace(i) for i in range(1, 4)]
    page = new_page()
    page.goto(server.url)
    expect(page.locator(".rtv-card")).to_have_count(3)
    server.traces.append(produce_trace(4))
    page.keyboard.press("r")
    expect(page.locator(".rtv-card")).to_have_count(4)
    page.keyboard.press("s")
    page.get_by_role("columnheader", name="Self").wait_for()
    page.keyboard.press("s")
    for key in ("m", "ArrowDown", "m"):
        page.keyboard.press(key)
    assert [box.is_checked() for box in page.locator(".rtv-card input").all()] == [True, True, False, False]
    page.keyboard.press("m")
    page.keyboard.press("m")
    page.keyboard.press("d")
    page.get_by_role("tree", name="Both traces").wait_for()
    sides = [page.get_by_label(f"Trace {side}") for side in "AB"]
    first, second = (side.input_value() for side in sides)
    page.keyboard.press("w")
    assert [side.input_value() for side in sides] == [second, first] != [first, second]
    page.keyboard.press("s")
    page.get_by_role("table", name="Differences per hop").wait_for()
    page.keyboard.press("s")
    page.get_by_role("tree", name="Both traces").wait_for()


def test_find_marks_and_walks_the_matches(show: Any, keep: Keep) -> None:
    page = show(produce_trace())
    page.keyboard.press("Tab")
    page.get_by_role("tree").focus()
    page.keyboard.press("/")
    page.keyboard.type("mesh.op_code=2")
    assert page.locator(".rtv-match .rtv-op").all_inner_texts() == ["mesh.kafkaop.sent", "mesh.kafkaop.handle"]
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator(".rtv-find-count").inner_text() == "2 of 2"
    assert page.locator(".rtv-sel .rtv-op").inner_text() == "mesh.kafkaop.handle"
    keep(page, "found")
    page.get_by_role("searchbox").fill("no such thing")
    assert page.locator(".rtv-find-count").inner_text() == "no match"
    page.keyboard.press("Escape")
    assert page.locator(".rtv-dim").count() == 0


def test_the_minimap_zooms_by_dragging_and_by_keys(show: Any, keep: Keep) -> None:
    page = show(produce_trace())
    assert range_of(page) == (0, 100)
    drag(page, ".rtv-map-area", 0.25, 0.75)
    assert range_of(page) == pytest.approx((25, 75), abs=1)
    assert page.locator(".rtv-axis .rtv-tick").first.inner_text() != "0 µs"
    keep(page, "zoomed")
    page.locator(".rtv-map-handle").nth(0).focus()
    page.keyboard.press("Shift+ArrowRight")
    assert range_of(page) == pytest.approx((35, 75), abs=1)
    drag(page, ".rtv-axis", 0.1, 0.6)
    assert range_of(page) == pytest.approx((39, 59), abs=1)
    page.get_by_role("button", name="Reset zoom").click()
    assert range_of(page) == (0, 100)
    page.get_by_role("tree").focus()
    page.keyboard.press("+")
    assert range_of(page) == pytest.approx((20, 80), abs=1)
    drag(page, ".rtv-map-area", 0.01, 0.04)
    page.get_by_role("searchbox").fill("ack_received")
    page.keyboard.press("Enter")
    shown = range_of(page)
    assert shown[0] < 1_780 / 21.8 < shown[1], "a found span outside the range moves the range to it"


def test_the_theme_follows_the_system_and_the_button(show: Any) -> None:
    page = show(produce_trace())
    background = "e => getComputedStyle(e).backgroundColor"
    light = page.locator(".rtv").evaluate(background)
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector(".rtv[data-theme=dark]")
    assert page.locator(".rtv").evaluate(background) != light
    page.get_by_role("button", name="Light or dark").click()
    assert page.locator(".rtv").evaluate(background) == light


CONTRAST = """() => {
  const probe = document.createElement('i');
  const root = document.querySelector('.rtv');
  root.append(probe);
  const light = (name) => {
    probe.style.color = `var(--rtv-${name})`;
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ratio = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const pairs = ['bg', 'raised'].flatMap((ground) => ['ink', 'muted', 'accent', 'bad'].map((name) => [name, ground]));
  pairs.push(['warn', 'warn-soft'], ['bad', 'bad-soft'], ['record', 'record-soft'], ['accent', 'accent-soft']);
  for (let i = 0; i < 12; i += 1) pairs.push([`c${i}`, 'bg']);
  return Object.fromEntries(pairs.map(([a, b]) => [`${a} on ${b}`, ratio(a, b)]));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_bars_have_the_contrast_that_wcag_asks_for(show: Any, scheme: str) -> None:
    ratios = show(produce_trace(), color_scheme=scheme).evaluate(CONTRAST)
    assert {name: ratio for name, ratio in ratios.items() if ratio < 4.5} == {}


def test_two_traces_are_compared_by_structure_and_by_hop(show: Any, keep: Keep) -> None:
    first, second = produce_trace(1), produce_trace(2, slowness=1.5, extra_hop=True)
    page = show([first, second], mode="compare")
    assert "B is slower by 1.02 ms" in page.locator(".rtv-strip-facts").inner_text()
    store = row(page, "broker.produce.store").get_attribute("aria-label")
    assert "A 790 µs, B 1.19 ms, difference +395 µs" in store
    assert row(page, "mesh.retry").get_attribute("aria-label").endswith("only in B")
    assert row(page, "kafkaop.ack,").locator(".rtv-delta").inner_text() == "0"
    keep(page, "structure")
    page.get_by_role("tab", name="Per hop").click()
    table = page.get_by_role("table", name="Differences per hop")
    assert table.locator("tbody tr").count() == 8
    assert "+395 µs" in table.locator("tr", has_text="broker.produce.store").inner_text()
    keep(page, "hops")
    page.get_by_role("button", name="Swap A and B").click()
    assert "B is faster by 1.02 ms" in page.locator(".rtv-strip-facts").inner_text()


def test_statistics_per_hop_sort_and_lead_back_to_the_spans(show: Any, keep: Keep) -> None:
    page = show(produce_trace())
    page.get_by_role("tab", name="Statistics").click()
    cells = page.locator("tr", has_text="mesh.kafkaop.handle").locator("td").all_inner_texts()
    assert cells[1] == "1"
    assert cells[7] == "1.13 ms"
    assert cells[8] == "180 µs", "self time: 1130 less 790 and 160"
    keep(page, "table")
    page.get_by_role("button", name="Total").click()
    assert page.locator("tbody tr").first.inner_text().startswith("gateway.kafka.request")
    page.get_by_role("button", name="Total").click()
    first = page.locator("tbody tr").first
    assert first.inner_text().startswith("kafkaop.ack_received")
    first.click()
    assert page.locator(".rtv-sel .rtv-op").inner_text() == "kafkaop.ack_received"


def test_clock_skew_and_missing_parents_are_shown_and_clocks_can_be_adjusted(show: Any, keep: Keep) -> None:
    page = show(skewed_trace())
    notes = page.locator(".rtv-notes").inner_text()
    assert "1 parent span not in this trace" in notes
    assert "clocks differ" in notes
    assert page.locator(".rtv-missing .rtv-svc").inner_text() == "c" * 16
    assert row(page, "broker.replicate").get_attribute("aria-level") == "2"
    keep(page, "recorded")
    left = "e => parseFloat(e.querySelector('.rtv-bar').style.left)"
    assert row(page, "mesh.kafkaop.handle").evaluate(left) < row(page, "mesh.kafkaop.sent").evaluate(left)
    page.get_by_role("button", name="Adjust clocks").click()
    assert row(page, "mesh.kafkaop.handle").evaluate(left) >= row(page, "mesh.kafkaop.sent").evaluate(left)
    keep(page, "adjusted")


def test_damaged_traces_are_shown_as_well_as_they_can_be(show: Any) -> None:
    ids = [f"{number:016x}" for number in range(1, 7)]
    plain = {"process": "p1", "start": 100, "duration": 50}
    damaged = trace("f" * 32, [span("f" * 32, ids[0], "root", parent=None, **plain)])
    damaged["spans"] += [
        damaged["spans"][0],
        span("f" * 32, ids[0], "other span with the root's id", parent=None, **plain),
        span("f" * 32, ids[1], "circle one", parent=ids[2], **plain),
        span("f" * 32, ids[2], "circle two", parent=ids[1], **plain),
        span("f" * 32, ids[3], "own parent", parent=ids[3], **plain),
        {"traceID": "f" * 32, "spanID": ids[4]},
        {**span("f" * 32, ids[5], "backwards", parent=ids[0], **plain), "duration": -5, "tags": None, "logs": "none"},
    ]
    page = show(damaged)
    assert sorted(page.locator(".rtv-op").all_inner_texts()) == sorted(
        ["root", "backwards", "other span with the root's id", "circle one", "circle two", "own parent", "(no name)"]
    )
    assert "1 exact copy of spans left out" in page.locator(".rtv-notes").inner_text()
    row(page, "backwards").click()
    assert "ends before it starts" in page.locator(".rtv-detail").inner_text()


@pytest.mark.parametrize("spans", [1, 10_000])
def test_a_single_chain_of_any_depth_is_drawn(show: Any, spans: int) -> None:
    chain = [
        span(
            "e" * 32,
            f"{i + 1:016x}",
            f"op {i}",
            parent=f"{i:016x}" if i else None,
            process="p1",
            start=i,
            duration=spans,
        )
        for i in range(spans)
    ]
    page = show(trace("e" * 32, chain))
    assert page.locator(".rtv-strip-facts").inner_text().split()[-1] == str(spans)
    page.get_by_role("tree").focus()
    page.keyboard.press("End")
    page.keyboard.press("End")
    assert page.locator(".rtv-sel .rtv-op").inner_text() == f"op {spans - 1}"


EVIL = "<img src=x onerror=window.pwned=1>\"'><script>window.pwned=2</script>"


def evil_trace() -> Any:
    link = {"refType": "FOLLOWS_FROM", "traceID": EVIL, "spanID": EVIL}
    fields = [tag("event", EVIL), tag(EVIL, EVIL), tag("url", "javascript:window.pwned=3")]
    bad = span(
        EVIL,
        EVIL,
        EVIL,
        parent=None,
        process="p",
        start=0,
        duration=10,
        links=[link],
        tags=[*fields, tag("messaging.kafka.offset", EVIL), tag("kafka.topic", EVIL), tag("error", True)],
        logs=[{"timestamp": 1, "fields": fields}],
    )
    child = span(EVIL, "2", f"produce {EVIL}", parent=f"{EVIL}gone", process="p", start=0, duration=10)
    found = trace(EVIL, [{**bad, "warnings": [EVIL]}, child])
    return {**found, "processes": {"p": {"serviceName": EVIL, "tags": fields}}, "warnings": [EVIL]}


def walk_everything(page: Any) -> None:
    for item in page.locator("[role=treeitem]").all():
        item.click()
        page.wait_for_selector(".rtv-detail h3")
    page.get_by_role("tab", name="Statistics").click()


@pytest.mark.parametrize("guarded", [True, False], ids=["static page", "page without a policy"])
def test_nothing_in_a_trace_runs_or_becomes_markup(show: Any, new_page: NewPage, server: Any, guarded: bool) -> None:
    if guarded:
        page = show(evil_trace(), title=EVIL)
    else:
        page = new_page()
        page.goto(f"{server.url}/bare")
        page.evaluate(
            "async (traces) => { (await import('/viewer/viewer.js')).mount(document.getElementById('a'), {traces}) }",
            [evil_trace()],
        )
    page.wait_for_selector("[role=treeitem]")
    assert EVIL in page.locator(".rtv-op").all_inner_texts()
    walk_everything(page)
    assert page.evaluate("window.pwned") is None
    assert page.locator(".rtv img, .rtv script, .rtv a[href^=javascript]").count() == 0


# Idle and scrolling in turns: what else the machine does is in both.
FRAMES = """async () => {
  const tree = document.querySelector('[role=tree]');
  let most = 0;
  const frames = {idle: [], scrolling: []};
  const next = () => new Promise(requestAnimationFrame);
  for (let turn = 0; turn < 12; turn += 1) {
    const [kind, step] = turn % 2 ? ['scrolling', 1700] : ['idle', 0];
    let last = await next();
    for (let frame = 0; frame < 20; frame += 1) {
      tree.scrollTop += step;
      const now = await next();
      frames[kind].push(now - last);
      last = now;
      most = Math.max(most, tree.querySelectorAll('[role=treeitem]').length);
    }
  }
  const sorted = (list) => list.toSorted((a, b) => a - b);
  const [idle, scrolling] = [sorted(frames.idle), sorted(frames.scrolling)];
  return {most, top: tree.scrollTop, idle: idle[60], median: scrolling[60], p95: scrolling[114], worst: scrolling[119]};
}"""
# Scrolling that draws only what is seen keeps up with the screen, on a busy machine too; what walks all spans does not.
FRAME_BOUND = 3


def test_ten_thousand_spans_scroll_with_a_bounded_document(show: Any, keep: Keep, output: Path) -> None:
    page = show(large_trace(10_000))
    assert "10,000" in page.locator(".rtv-strip-facts").inner_text()
    keep(page, "top")
    result = page.evaluate(FRAMES)
    (output / "frames-ms.json").write_text(json.dumps(result))
    assert result["top"] > 100_000
    assert 10 < result["most"] <= ROW_BOUND
    assert result["median"] < FRAME_BOUND * result["idle"], result
    keep(page, "scrolled")
    page.get_by_role("searchbox").fill("index=9999")
    page.keyboard.press("Enter")
    assert page.locator(".rtv-find-count").inner_text() == "1 of 1"
    page.locator(".rtv-sel").click()
    assert page.locator(".rtv-detail td", has_text="9999").count() == 1
    assert page.locator("[role=treeitem]").count() <= ROW_BOUND
    drag(page, ".rtv-map-area", 0.9, 1.0)
    keep(page, "end")


def test_export_is_the_input_and_import_takes_every_form_of_jaegers_json(show: Any, tmp_path: Path) -> None:
    page = show(produce_trace(1))
    with page.expect_download() as caught:
        page.get_by_role("button", name="Export").click()
    saved = tmp_path / caught.value.suggested_filename
    caught.value.save_as(saved)
    assert saved.name == f"trace-{produce_trace(1)['traceID']}.json"
    assert json.loads(saved.read_text())["data"] == [produce_trace(1)]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(produce_trace(2)))
    broken = tmp_path / "broken.json"
    broken.write_text('{"data": [{"spans": [')
    other = tmp_path / "other.json"
    other.write_text('{"data": [{"name": "not a trace"}]}')
    upload = page.locator("input[type=file]")
    upload.set_input_files(saved)
    page.get_by_text("1 trace read").wait_for()
    upload.set_input_files(bare)
    page.locator("h2", has_text="gateway.kafka.connect").wait_for()
    assert produce_trace(2)["traceID"] in page.locator(".rtv-trace-id").inner_text()
    upload.set_input_files(broken)
    page.get_by_text("broken.json: not valid JSON").wait_for()
    upload.set_input_files(other)
    page.get_by_text("the trace has no list of spans").wait_for()
    page.get_by_role("button", name="All traces").click()
    assert page.locator(".rtv-card").count() == 2


def test_the_list_filters_sorts_plots_and_opens(show: Any, keep: Keep) -> None:
    traces = [produce_trace(i, slowness=1 + i % 4, failed=i == 5, extra_hop=i == 6) for i in range(1, 31)]
    page = show(traces)
    assert page.locator("circle").count() == 30
    keep(page, "list")
    page.get_by_label("Only traces with errors").check()
    assert page.locator(".rtv-card").count() == 1
    page.get_by_label("Only traces with errors").uncheck()
    page.get_by_label("Operation").select_option("mesh.retry")
    assert page.locator(".rtv-card").count() == 1
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Tags").fill("messaging.kafka.offset=40970")
    assert page.locator(".rtv-card").locator(".rtv-record-offset").all_inner_texts() == ["offset 40970"]
    page.get_by_label("Tags").fill("")
    page.get_by_label("Min duration").fill("8ms")
    assert page.locator("circle").count() == 7
    page.get_by_label("Min duration").fill("fast")
    assert 'Min duration: cannot read "fast"' in page.get_by_role("alert").inner_text()
    page.get_by_label("Min duration").fill("1h")
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("Max duration").fill("1us")
    page.get_by_text("No trace matches").wait_for()
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("Order of the traces").select_option("shortest")
    assert page.locator(".rtv-card-took").first.inner_text() == "2.18 ms"
    target = page.locator("circle").nth(3).get_attribute("data-trace")
    page.locator("circle").nth(3).click()
    assert target in page.locator(".rtv-trace-id").inner_text()


def test_the_list_works_by_keyboard_up_to_the_comparison(show: Any) -> None:
    page = show([produce_trace(i) for i in range(1, 5)])
    page.get_by_role("listbox").focus()
    for key in ("Space", "ArrowDown", "ArrowDown", "Space", "d"):
        page.keyboard.press(key)
    page.get_by_role("tree", name="Both traces").wait_for()
    page.keyboard.press("b")
    page.get_by_role("listbox").focus()
    page.keyboard.press("Enter")
    page.get_by_role("tree", name="Spans").wait_for()


def test_a_page_without_traces_says_what_to_do(show: Any, keep: Keep) -> None:
    page = show([])
    assert "Import a trace" in page.locator(".rtv-state").inner_text()
    keep(page, "empty")


def send(address: str, traces: list[Any]) -> None:
    body = json.dumps(otlp(traces, end_us=time.time_ns() // 1_000)).encode()
    request = urllib.request.Request(f"{address}/v1/traces", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {}, "everything was taken"


def test_the_real_collectors_page_searches_opens_and_links(new_page: NewPage, collector: str, keep: Keep) -> None:
    page = new_page()
    page.goto(collector)
    page.get_by_text("No traces yet").wait_for()
    send(collector, [produce_trace(i, slowness=1 + i % 3, failed=i == 4) for i in range(1, 13)])
    page.get_by_role("button", name="Refresh").click()
    expect(page.locator(".rtv-card")).to_have_count(12)
    assert page.locator("circle.rtv-dot-error").count() == 1
    keep(page, "list")
    page.get_by_label("Service").select_option("rafka-broker")
    page.get_by_label("Operation").select_option("broker.produce.store")
    page.get_by_label("Tags").fill("kafka.topic=orders messaging.kafka.offset=40965")
    page.get_by_label("Min duration").fill("0.7ms")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".rtv-card")).to_have_count(1)
    assert page.locator(".rtv-card .rtv-record-offset").inner_text() == "offset 40965"
    page.locator(".rtv-card").click()
    assert page.locator(".rtv-op").all_inner_texts() == NAMES
    row(page, "broker.produce.store").click()
    keep(page, "trace")
    wanted = produce_trace(5)
    assert page.url.endswith(f"#/trace/{wanted['traceID']}?span={wanted['spans'][4]['spanID']}")
    again = new_page()
    again.goto(page.url)
    again.locator(".rtv-detail h3", has_text="broker.produce.store").wait_for()
    page.go_back()
    expect(page.locator(".rtv-card")).to_have_count(1)
    assert page.get_by_label("Min duration").input_value() == "0.7ms"
    page.get_by_label("Min duration").fill("1s")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("No trace matches").wait_for()


def test_the_collectors_page_explains_an_empty_a_failing_and_a_dead_store(
    new_page: NewPage, server: Any, keep: Keep
) -> None:
    page = new_page()
    page.goto(server.url)
    page.get_by_text("No traces yet").wait_for()
    keep(page, "empty")
    server.broken = True
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text("store is locked").wait_for()
    server.broken = False
    server.traces = [produce_trace(1)]
    page.get_by_role("button", name="Try again").click()
    page.locator(".rtv-card").first.wait_for()
    page.goto(f"{server.url}/#/trace/{'0' * 31}7")
    page.get_by_text("Trace not found").wait_for()
    page.goto(f"{server.url}/#/search")
    page.locator(".rtv-card").first.wait_for()
    page.context.set_offline(True)
    page.keyboard.press("r")
    page.get_by_text("Cannot reach the trace store").wait_for()
    keep(page, "dead")


def test_the_first_trace_of_an_empty_store_shows_up_by_itself(new_page: NewPage, server: Any) -> None:
    page = new_page()
    page.goto(server.url)
    page.get_by_text("No traces yet").wait_for()
    server.traces = [produce_trace(1)]
    expect(page.locator(".rtv-card")).to_have_count(1, timeout=20_000)


def test_spans_that_never_came_are_said_above_the_list(new_page: NewPage, server: Any, keep: Keep) -> None:
    page = new_page()
    page.goto(server.url)
    page.get_by_text("No traces yet").wait_for()
    notices = page.locator(".rtv-results .rtv-notice")
    server.stats = {"spans": 0, "dropped": 1, "rejected": 0}
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text("1 span was dropped by recorders").wait_for()
    assert notices.count() == 1
    server.traces = [produce_trace(i) for i in range(1, 13)]
    server.stats = {"spans": 84, "dropped": 12_345, "rejected": 3}
    page.keyboard.press("r")
    page.get_by_text("12,345 spans were dropped by recorders").wait_for()
    assert "3 spans were rejected" in notices.nth(1).inner_text()
    assert page.locator(".rtv-card").first.is_visible()
    keep(page, "list")
    page.locator(".rtv-card").first.click()
    page.get_by_role("button", name="All traces").click()
    page.get_by_text("12,345 spans were dropped by recorders").wait_for()
    server.stats = {"spans": 84, "dropped": 0, "rejected": 0}
    page.get_by_role("button", name="Search").click()
    expect(notices).to_have_count(0)


WIDGET = """async (traces) => {
  const widget = (await import('/viewer/viewer.js')).default;
  window.models = ['a', 'b'].map((id) => {
    const traits = {traces, theme: 'auto', selected: ''};
    const listeners = {};
    const model = {saved: [], get: (name) => traits[name], set: (name, value) => { traits[name] = value; },
      save_changes: () => model.saved.push(traits.selected), on: (name, f) => { listeners[name] = f; },
      off: (name) => { delete listeners[name]; }, listeners,
      fire: (name, value) => { traits[name] = value; listeners[`change:${name}`](); }};
    model.stop = widget.render({model, el: document.getElementById(id)});
    return model;
  });
}"""


def test_the_widget_writes_the_selected_span_and_follows_its_traits(new_page: NewPage, server: Any, keep: Keep) -> None:
    page = new_page()
    page.goto(f"{server.url}/bare")
    before = page.locator("#outside").evaluate(
        "e => JSON.stringify([...getComputedStyle(e)].map(n => getComputedStyle(e)[n]))"
    )
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    page.evaluate(WIDGET, [produce_trace(1)])
    page.wait_for_selector("#b [role=treeitem]")
    assert page.locator(".rtv[data-theme=dark]").count() == 2, "JupyterLab's theme decides"
    page.locator("#a [role=treeitem]").nth(4).click()
    store = produce_trace(1)["spans"][4]["spanID"]
    assert page.evaluate("models.map((model) => model.saved)") == [[store], []]
    keep(page, "dark")
    page.evaluate("traces => models[0].fire('traces', traces)", [produce_trace(1), produce_trace(2)])
    assert page.locator("#a .rtv-sel").count() == 1, "the open trace stays open, with its selected span"
    page.evaluate("traces => models[0].fire('traces', traces)", [produce_trace(2), produce_trace(3)])
    assert page.locator("#a [role=option]").count() == 2
    page.evaluate("id => models[0].fire('selected', id)", produce_trace(3)["spans"][5]["spanID"])
    assert page.locator("#a .rtv-detail h3").inner_text() == "kafkaop.ack"
    page.evaluate("models[1].fire('theme', 'light')")
    assert page.locator("#b .rtv").get_attribute("data-theme") == "light"
    page.evaluate("models.forEach((model) => model.stop())")
    assert page.evaluate("document.querySelectorAll('.rtv').length + Object.keys(models[0].listeners).length") == 0
    after = page.locator("#outside").evaluate(
        "e => JSON.stringify([...getComputedStyle(e)].map(n => getComputedStyle(e)[n]))"
    )
    assert after == before, "the viewer's styles stay inside it"


def test_the_form_of_an_exported_notebook_draws_the_waterfall_in_its_sandbox(
    new_page: NewPage, tmp_path: Path, keep: Keep
) -> None:
    bundle = TraceViewer([jaeger_json.trace_of(produce_trace())])._repr_mimebundle_()
    exported = tmp_path / "exported.html"
    exported.write_text(f"<!doctype html><title>notebook</title>{bundle[0]['text/html']}", "utf-8")
    page = new_page(offline=True)
    page.goto(exported.as_uri())
    [frame] = page.frames[1:]
    frame.wait_for_selector("[role=treeitem]")
    assert frame.evaluate("window.origin") == "null", "what a trace holds is apart from the notebook"
    assert frame.locator(".rtv-op").all_inner_texts() == NAMES
    bars = [bar.bounding_box() for bar in frame.locator(".rtv-bar").all()]
    assert len(bars) == len(NAMES)
    assert all(bar["width"] > 1 and bar["height"] > 1 for bar in bars)
    assert bars[0]["x"] < bars[2]["x"] < bars[4]["x"] < bars[6]["x"], "each hop begins after the one above it"
    frame.locator("[role=treeitem]", has_text="broker.produce.store").click()
    assert frame.locator(".rtv-detail h3").inner_text() == "broker.produce.store"
    keep(page, "open")


def test_every_style_rule_is_scoped(show: Any) -> None:
    page = show(produce_trace())
    loose = page.evaluate("""() => {
      const selectors = (rules) => [...rules].flatMap((rule) =>
        rule.selectorText ? rule.selectorText.split(/,(?![^(]*\\))/) : selectors(rule.cssRules ?? []));
      return selectors(document.styleSheets[0].cssRules).map((text) => text.trim());
    }""")
    assert len(loose) > 100
    page_rules = {"html", "body", "#viewer"}
    assert [text for text in loose if not text.startswith(".rtv") and text not in page_rules] == []


# Rules that JupyterLab gives to HTML output, and that once pushed the viewer's facts over each other.
NOTEBOOK_RULES = """
.jp-RenderedHTMLCommon dl dt { float: left; width: 20%; display: block; font-weight: bold; }
.jp-RenderedHTMLCommon dl dd { float: left; width: 80%; }
.jp-RenderedHTMLCommon table { margin-left: auto; table-layout: fixed; border: none; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { text-align: right; padding: 20px; max-width: none; }
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) { background: red; }
.jp-RenderedHTMLCommon p { margin: 0 0 30px; text-align: right; }
"""


def test_a_notebooks_styles_and_single_key_commands_stay_apart_from_the_viewer(
    new_page: NewPage, server: Any, keep: Keep
) -> None:
    page = new_page()
    page.goto(f"{server.url}/bare")
    page.add_style_tag(content=NOTEBOOK_RULES)
    page.evaluate("document.getElementById('a').className = 'jp-RenderedHTMLCommon'")
    page.evaluate("window.leaked = []; document.addEventListener('keydown', (event) => leaked.push(event.key))")
    page.evaluate(
        "async (traces) => { (await import('/viewer/viewer.js')).mount(document.getElementById('a'), {traces}) }",
        [produce_trace(1)],
    )
    row(page, "broker.produce.store").click()
    for label, value in zip(page.locator(".rtv-fact dt").all(), page.locator(".rtv-fact dd").all(), strict=True):
        above, below = label.bounding_box(), value.bounding_box()
        beside = above["x"] + above["width"] <= below["x"] + 1
        assert beside or above["y"] + above["height"] <= below["y"] + 1, "a label covers its value"
    cell = page.get_by_role("table", name="Attributes").locator("tr").first
    assert cell.evaluate("e => getComputedStyle(e).backgroundColor") == "rgba(0, 0, 0, 0)"
    keep(page, "inside")
    for key in ("a", "d", "d", "j", "Escape", "Shift+Enter"):
        page.keyboard.press(key)
    page.keyboard.press("Control+b")
    assert page.evaluate("leaked") == ["Control", "b"], "only keys with a modifier go on to the notebook"
