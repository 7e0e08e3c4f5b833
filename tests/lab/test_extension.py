"""What `%load_ext lab` does to charts: JupyterLab draws them, without a network, in both themes."""

from typing import Any

import altair
import nbformat
import pandas as pd


def test_a_chart_is_one_that_jupyterlab_draws_itself(shell: Any) -> None:
    chart = altair.Chart(pd.DataFrame({"a": [1]})).mark_bar().encode(x="a:Q").configure_axis(labelColor="red")
    chart = chart.configure(background="yellow")
    shown = shell.display_formatter.format(chart)[0]
    spec = shown["application/vnd.vegalite.v5+json"]
    assert "text/html" not in shown  # which would load a script
    assert spec["$schema"].endswith("/v5.json")
    assert spec["config"]["background"] == "yellow"
    assert spec["config"]["legend"]["labelColor"]
    output = nbformat.v4.new_output("display_data", shown)
    nbformat.validate(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])]))


def test_a_second_load_changes_nothing(shell: Any) -> None:
    kcat = shell.magics_manager.magics["line"]["kcat"]
    shell.run_line_magic("reload_ext", "lab")
    assert shell.magics_manager.magics["line"]["kcat"] == kcat
