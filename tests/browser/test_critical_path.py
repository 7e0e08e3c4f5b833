"""The viewer's critical path and that of `traces.critical_path` are the same."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sample_traces import produce_trace, skewed_trace

from traces import jaeger_json
from traces.viewer import static_html


@pytest.mark.parametrize("make", [produce_trace, lambda: produce_trace(2, slowness=3, extra_hop=True), skewed_trace])
def test_the_viewer_draws_the_path_that_the_library_computes(
    new_page: Callable[..., Any], tmp_path: Path, make: Callable[[], Any]
) -> None:
    document = make()
    (tmp_path / "trace.html").write_text(static_html(document), "utf-8")
    page = new_page()
    page.goto((tmp_path / "trace.html").as_uri())
    page.wait_for_selector(".rtv-panel")
    trace = jaeger_json.trace_of(document)
    width = page.locator(".rtv-cell-time").first.bounding_box()["width"]
    drawn: Counter[str] = Counter()
    for row in page.locator("[role=treeitem]").all():
        name = row.locator(".rtv-op").inner_text()
        drawn[name] += sum(mark.bounding_box()["width"] / width for mark in row.locator(".rtv-crit").all())
    computed: Counter[str] = Counter()
    for span, own in trace.critical_path():
        computed[span.name] += own / 1e6 / trace.duration_ms
    assert set(+drawn) == set(computed)
    for name, share in computed.items():
        assert drawn[name] == pytest.approx(share, abs=0.01), name
