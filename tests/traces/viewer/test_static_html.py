"""The static page: self-contained, safe whatever a trace holds, and true to the data."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.viewer import MAX_SAFE_INTEGER, PAGE, SCRIPT, STYLE, static_html


class Page(HTMLParser):
    """The page as a browser's tokenizer sees it: elements with their attributes, and the text of each script."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("type") or tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data

    @property
    def options(self) -> Any:
        return json.loads(self.texts["application/json"])


def make_trace(value: Any = "v", trace_id: str = "a" * 32) -> dict[str, Any]:
    tags = [{"key": "k", "type": "string", "value": value}]
    return {"traceID": trace_id, "processes": {}, "spans": [{"spanID": "1", "operationName": "op", "tags": tags}]}


def test_the_page_asks_for_nothing_outside_itself() -> None:
    source = static_html(make_trace())
    elements = Page(source).elements
    assert [name for name, attributes in elements if {"src", "href"} & attributes.keys()] == []
    assert re.findall(r"""(?:from|import\()\s*["'`]|url\(|@import""", source) == []


@pytest.mark.parametrize("form", ["trace", "list", "answer"])
def test_every_form_of_jaegers_json_is_taken(form: str) -> None:
    trace = make_trace()
    given_form: Any = {"trace": trace, "list": [trace], "answer": {"data": [trace], "total": 1}}[form]
    assert Page(static_html(given_form)).options["traces"] == [trace]


@pytest.mark.parametrize("wrong", [{"data": [{"name": 1}]}, [{}], {"traceID": "1"}, ["spans"]])
def test_what_is_not_a_trace_is_refused_with_what_to_pass(wrong: Any) -> None:
    with pytest.raises(ValueError, match="trace 1 of 1 has no list of spans; pass Jaeger v1 traces"):
        static_html(wrong)


def test_an_unknown_theme_is_refused() -> None:
    with pytest.raises(ValueError, match="use one of auto, light, dark"):
        static_html(make_trace(), theme="blue")


def test_what_json_cannot_hold_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="a trace holds a bytes"):
        static_html(make_trace(b"raw"))


@given(
    st.text()
    | st.sampled_from(["</script><script>x()</script>", "<!--<script>", "{options}", "\u2028", "]]>", "\ud800"])
)
def test_any_text_stays_data_and_comes_back_whole(text: str) -> None:
    page = Page(static_html(make_trace(text), title=text))
    assert [name for name, _ in page.elements].count("script") == 2
    readable = text.encode("utf-8", "replace").decode("utf-8")
    assert page.options["traces"][0]["spans"][0]["tags"][0]["value"] == readable


@given(st.integers())
def test_integers_keep_every_digit_in_javascript(number: int) -> None:
    value = Page(static_html(make_trace(number))).options["traces"][0]["spans"][0]["tags"][0]["value"]
    assert str(value) == str(number)
    assert isinstance(value, str) or abs(value) <= MAX_SAFE_INTEGER


def test_numbers_that_json_does_not_have_become_text() -> None:
    values = [float("nan"), float("inf"), float("-inf")]
    tags = Page(static_html(make_trace(values))).options["traces"][0]["spans"][0]["tags"]
    assert tags[0]["value"] == ["nan", "inf", "-inf"]


def test_the_policy_runs_the_viewer_and_nothing_else() -> None:
    page = Page(static_html(make_trace()))
    policy = next(attributes["content"] for name, attributes in page.elements if "http-equiv" in attributes)
    assert policy is not None
    for kind in ("module", "style"):
        digest = base64.b64encode(hashlib.sha256(page.texts[kind].encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_the_viewers_source_can_stand_inside_a_script_element() -> None:
    source = SCRIPT.read_text("utf-8")
    assert "</script" not in source.lower()
    assert "<!--" not in source
    assert "</style" not in STYLE.read_text("utf-8").lower()


def test_the_viewers_source_never_parses_a_string_as_markup() -> None:
    source = SCRIPT.read_text("utf-8")
    ways = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
        "srcdoc",
    )
    assert [way for way in ways if way in source] == []


def test_the_collectors_page_loads_the_viewer_from_beside_itself() -> None:
    """Of its own origin, and below the path at which a proxy shows it."""
    source = PAGE.read_text("utf-8")
    assert '"./viewer/viewer.js"' in source
    assert '"viewer/viewer.css"' in source
    assert "://" not in source
