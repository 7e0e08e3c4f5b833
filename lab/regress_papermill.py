"""One notebook through papermill, and what it says about the cell that failed."""

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.regress import Job

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_START_SECONDS = 120
# Cells that papermill puts in; people count those that they wrote.
_ADDED = {"injected-parameters", "papermill-error-cell-tag"}


@dataclass(frozen=True)
class Failure:
    """The first cell that failed, counted from 1 over all cells, and its error."""

    cell: int | None
    source: str
    error: str


def execute(job: "Job") -> Failure | None:
    """Runs it in the notebook's own folder; the executed notebook is written whatever happens."""
    import papermill
    from nbclient.exceptions import CellTimeoutError, DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    logging.getLogger("papermill").setLevel(logging.ERROR)
    job.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        papermill.execute_notebook(
            str(job.path),
            str(job.output),
            parameters=job.parameters,
            cwd=str(job.path.resolve().parent),
            progress_bar=False,
            log_output=False,
            start_timeout=_START_SECONDS,
            execution_timeout=round(job.timeout),
        )
    except PapermillExecutionError as error:
        return _failure(job, error)
    except CellTimeoutError:
        return Failure(None, "", f"a cell took longer than {job.timeout:g} s")
    except DeadKernelError as error:
        return Failure(None, "", f"the kernel died: {error}")
    return None


def _failure(job: "Job", error: Any) -> Failure:
    """Papermill knows the cell; what a magic says stands in the cell's output only."""
    import nbformat

    document = nbformat.read(job.output, as_version=4)  # type: ignore[no-untyped-call]
    text = "\n".join(error.traceback or [])
    said = f"{error.ename}: {error.evalue}" if error.ename else ""
    number = None
    own = [cell for cell in document.cells if not _ADDED & set(cell.metadata.get("tags", ()))]
    for position, cell in enumerate(own, 1):
        if cell.cell_type == "code" and cell.get("execution_count") == error.exec_count and cell.source == error.source:
            number = position
            if not any(out.output_type == "error" for out in cell.outputs):
                said = "".join(out.text for out in cell.outputs if out.output_type == "stream")
                text = ""
    plain = _COLOURS.sub("", text).strip()
    return Failure(number, error.source, f"{plain}\n{said}".strip() if said and said not in plain else plain or said)
