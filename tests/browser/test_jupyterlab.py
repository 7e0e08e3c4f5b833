"""JupyterLab as a person meets it: open the first notebook, run it, see the panel and the trace, click."""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[2]
SERVER_SECONDS = 90.0
# Starting a kernel, three nodes and all cells takes about 15 s on a machine of its own.
RUN_MS = 150_000
# The kernel's lab starts, produces, and its nodes send their spans.
LISTED_SECONDS = 60.0


class Jupyter:
    """A JupyterLab on a copy of the notebooks, with a token, on loopback."""

    def __init__(self, folder: Path) -> None:
        self.notebooks = folder / "notebooks"
        shutil.copytree(ROOT / "notebooks", self.notebooks)
        self._token = secrets.token_hex(8)
        self._log = folder / "jupyter.log"
        folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "XDG_RUNTIME_DIR")  # labs of other tests stay out of it
        settings = {name: str(folder / name.lower()) for name in folders}
        flags = [
            "--no-browser",
            "--port=0",
            f"--notebook-dir={self.notebooks}",
            f"--IdentityProvider.token={self._token}",
        ]
        root = ["--allow-root"] if os.getuid() == 0 else []
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *flags, *root],
                stdout=log,
                stderr=log,
                env=os.environ | settings | {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")},
                process_group=0,
            )
        self.url = self._wait()

    def _wait(self) -> str:
        deadline = time.monotonic() + SERVER_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = re.search(r"http://(?:127\.0\.0\.1|localhost):(\d+)/lab", self._log.read_text())
            if found:
                url = f"http://127.0.0.1:{found[1]}"
                try:
                    urllib.request.urlopen(f"{url}/api/status?token={self._token}", timeout=5).close()
                except urllib.error.URLError:
                    pass
                else:
                    return url
            time.sleep(0.1)
        raise AssertionError(f"JupyterLab does not answer:\n{self._log.read_text()[-3000:]}")

    def address(self, notebook: str = "") -> str:
        """A notebook's, or the launcher's."""
        return f"{self.url}/lab{notebook and f'/tree/{notebook}'}?token={self._token}&reset"

    def add(self, name: str, source: str) -> str:
        """A notebook with one cell, for the kernel that is there: JupyterLab would ask for one otherwise."""
        cell = {
            "cell_type": "code",
            "id": "c00",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
        notebook = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (self.notebooks / name).write_text(json.dumps(notebook))
        return name

    def end_kernels(self) -> None:
        for kernel in json.loads(self._ask("GET", "api/kernels")):
            self._ask("DELETE", f"api/kernels/{kernel['id']}")

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(f"{self.url}/{path}", method=method)
        request.add_header("Authorization", f"token {self._token}")
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body

    def stop(self) -> None:
        """Kernels end with their server, and nodes with their kernels."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    server = Jupyter(tmp_path_factory.mktemp("jupyter"))
    yield server
    server.stop()


@pytest.fixture
def page(new_page: Callable[..., Any]) -> Page:
    page: Page = new_page(viewport={"width": 1440, "height": 1000})
    page.set_default_timeout(60_000)
    return page


def run_all(page: Page, jupyter: Jupyter, notebook: str) -> None:
    """Opens a notebook, runs it to its end and scrolls back to its top."""
    page.goto(jupyter.address(notebook))
    expect(page.locator(".jp-StatusBar-Widget, #jp-main-statusbar").first).to_contain_text("| Idle", timeout=RUN_MS)
    news = page.get_by_role("button", name="No", exact=True)
    if news.count():
        news.click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    cells = json.loads((jupyter.notebooks / notebook).read_text())["cells"]
    last = sum(cell["cell_type"] == "code" for cell in cells)
    page.locator(".jp-InputPrompt", has_text=f"[{last}]:").wait_for(timeout=RUN_MS)
    scroll(page, -100_000)


def scroll(page: Page, pixels: int) -> None:
    page.locator(".jp-WindowedPanel-outer").first.evaluate("(element, by) => element.scrollBy(0, by)", pixels)
    page.wait_for_timeout(100)


def bring(page: Page, selector: str) -> Any:
    """Scrolls down to the first such element: JupyterLab has only what can be seen in its document."""
    found = page.locator(selector).first
    for _ in range(60):
        if found.count() and found.is_visible():
            found.scroll_into_view_if_needed()
            return found
        scroll(page, 250)
    raise AssertionError(f"there is no {selector}")


def search_until(viewer: Any, text: str) -> None:
    """Searches as a person does whose trace is not listed yet: the list is that of the moment it was asked for."""
    found = viewer.get_by_text(text).first
    deadline = time.monotonic() + LISTED_SECONDS
    while True:
        try:
            expect(found).to_be_visible(timeout=2_000)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            viewer.get_by_role("button", name="Search", exact=True).click()
        else:
            return


def choose_theme(page: Page, name: str) -> None:
    page.get_by_role("menuitem", name="Settings", exact=True).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Theme$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^JupyterLab {name}$")).click()
    page.wait_for_function("light => document.body.dataset.jpThemeLight === light", arg=str(name == "Light").lower())


@pytest.mark.timeout(300)
def test_a_new_user_runs_the_first_notebook_and_looks_around(
    page: Page, jupyter: Jupyter, keep: Callable[[Any, str], None]
) -> None:
    run_all(page, jupyter, "00_start_here.ipynb")
    panel = bring(page, ".rl-panel")
    expect(panel.locator("tr[data-node=gateway] .rl-state")).to_have_text("running")
    expect(panel.locator("tr[data-node=broker-0]")).to_contain_text("1,002")
    keep(page, "light")

    viewer = bring(page, ".rtv")
    keep(page, "trace")
    viewer.get_by_text("broker.produce.store").first.click()
    expect(viewer.get_by_text("messaging.batch.message_count").first).to_be_visible()
    expect(viewer.get_by_text("wal.segment").first).to_be_visible()
    keep(page, "span")

    wal = bring(page, ".rl-wal")
    wal.locator("button.rl-part").first.click()
    expect(wal.locator(".rl-detail")).to_contain_text("hello partition 0: offsets 0 to 1,001")
    keep(page, "wal")

    choose_theme(page, "Dark")
    expect(wal).to_have_attribute("data-theme", "dark")
    expect(page.locator("#jupyterlab-splash")).to_have_count(0)
    keep(page, "wal-dark")
    scroll(page, -100_000)
    panel = bring(page, ".rl-panel")
    keep(page, "dark")

    panel.get_by_role("button", name="kill broker-0").click()
    expect(panel.locator("tr[data-node=broker-0] .rl-state")).to_have_text("killed", timeout=30_000)
    keep(page, "killed")
    panel.get_by_role("button", name="start broker-0").click()
    expect(panel.locator("tr[data-node=broker-0] .rl-state")).to_have_text("running", timeout=30_000)
    assert bring(page, ".rtv").get_attribute("data-theme") == "dark"
    keep(page, "trace-dark")


@pytest.mark.timeout(300)
def test_charts_are_drawn_without_a_network(page: Page, jupyter: Jupyter, keep: Callable[[Any, str], None]) -> None:
    run_all(page, jupyter, "10_follow_one_message.ipynb")
    chart = bring(page, ".vega-embed :is(canvas, svg)")
    assert chart.bounding_box()["width"] > 300
    keep(page, "waterfall")


@pytest.mark.timeout(300)
def test_the_launchers_tile_shows_the_traces_of_a_lab_in_any_kernel(
    new_page: Callable[..., Any], jupyter: Jupyter, keep: Callable[[Any, str], None]
) -> None:
    jupyter.end_kernels()  # of other tests, which may have left their labs running
    launcher, notebook = (new_page(viewport={"width": 1440, "height": 900}) for _ in range(2))
    launcher.set_default_timeout(60_000)
    launcher.goto(jupyter.address())
    tile = launcher.locator(".jp-LauncherCard", has_text="Traces")
    expect(tile.locator("img")).to_be_visible()
    keep(launcher, "launcher")
    tile.click()
    shown = launcher.frame_locator("iframe[src*=rafka-traces]")
    expect(shown.get_by_role("heading")).to_have_text("No lab is running")
    keep(launcher, "no-lab")

    source = "from rafka_lab import Lab\n\nlab = Lab().start()\nlab.produce('tile', 'x')\nlab.jaeger()"
    run_all(notebook, jupyter, jupyter.add("tile.ipynb", source))
    viewer = shown.frame_locator("iframe[title=Traces]")
    search_until(viewer, "produce tile")
    framed = notebook.frame_locator("iframe[title='Trace viewer']").locator(".rtv")
    choose_theme(notebook, "Light")  # another test may have left it dark
    expect(framed).to_have_attribute("data-theme", "light")
    for page in (launcher, notebook):
        choose_theme(page, "Dark")
    expect(framed).to_have_attribute("data-theme", "dark")
    expect(viewer.locator(".rtv")).to_have_attribute("data-theme", "dark")
    keep(launcher, "traces")
    keep(notebook, "framed")

    jupyter.end_kernels()
    expect(shown.get_by_role("heading")).to_have_text("No lab is running", timeout=30_000)
