"""Notebooks named after the failure they show, made for the tests of `rafka-lab regress`."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

CELLS = {
    "fine": ["answer = 42", "assert answer == 42"],
    "fails_its_assertion": ["answer = 42", "assert answer == limit, f'the answer is {answer}'", "never = 'run'"],
    "has_a_syntax_error": ["fine = 1", "def broken(:\n    pass"],
    "has_a_wrong_flag": ["%load_ext lab", "%kcat -Y"],
    "kills_its_kernel": ["import os", "os._exit(7)"],
    "takes_too_long": ["import time\ntime.sleep(600)"],
    "asks_for_an_unknown_topic": [
        "from rafka_lab import Lab\nlab = Lab(trace_ratio=0).start()",
        "lab.fetch('nowhere')",
    ],
}


def write(folder: Path, name: str, *, own: dict[str, object] | None = None) -> Path:
    """A notebook with a title, a parameters cell with `limit`, and the cells of that name."""
    cells = [new_markdown_cell(f"# {name}"), new_code_cell("limit = 41", metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in CELLS[name]]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.metadata["language_info"] = {"name": "python"}
    if own:
        notebook.metadata["rafka_lab"] = own
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path
