"""Notebooks as regression tests: which to run, with which parameters, each by papermill in a process of its own.

A notebook's metadata may say `{"rafka_lab": {"alone": true}}` (it measures time, so nothing runs beside it) and
`{"rafka_lab": {"needs": ["java"]}}` (it is skipped, by name, where that is missing).
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lab.errors import RegressError
from rafka_lab.java import INSTALL_JAVA, find_java

PARAMETERS_TAG = "parameters"
# A notebook that hangs must not hang a team's CI.
DEFAULT_TIMEOUT = 900.0
_LINE_LENGTH = 300
# What a notebook can need -> whether it is there, and what to do if not.
_NEEDS: dict[str, tuple[Callable[[], bool], str]] = {"java": (lambda: find_java() is not None, INSTALL_JAVA)}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One notebook to run."""

    path: Path
    output: Path
    parameters: dict[str, Any] = field(default_factory=dict)
    alone: bool = False
    missing: str = ""
    timeout: float = DEFAULT_TIMEOUT

    @property
    def name(self) -> str:
        return self.output.stem


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of it. `cell` is the number of the cell that failed, counted from 1 over all cells."""

    job: Job
    status: str  # passed, failed, skipped
    seconds: float = 0.0
    cell: int | None = None
    source: str = ""
    error: str = ""

    @property
    def first_line(self) -> str:
        """What went wrong in one line, as Python ends a traceback."""
        lines = self.error.strip().splitlines()
        return lines[-1][:_LINE_LENGTH] if lines else ""


def find_notebooks(given: Iterable[Path]) -> list[Path]:
    """The notebooks of files and folders; without any those of `notebooks/`, regressions last."""
    places = list(given) or [_default_folder()]
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(place.glob("*.ipynb")) + sorted((place / "regression").glob("*.ipynb"))
            if not inside:
                raise RegressError(f"there are no notebooks in {place}")
            found += inside
        elif place.is_file():
            found.append(place)
        else:
            raise RegressError(f"there is no notebook {place}")
    return list(dict.fromkeys(found))


def _default_folder() -> Path:
    for folder in (Path("notebooks"), Path(__file__).resolve().parents[1] / "notebooks"):
        if folder.is_dir():
            return folder
    raise RegressError("there is no folder 'notebooks' here: name the notebooks to run")


def make_jobs(notebooks: list[Path], out: Path, given: dict[str, Any], timeout: float = DEFAULT_TIMEOUT) -> list[Job]:
    """Each notebook gets those of the parameters that it has; one that none has is a mistake."""
    documents = {path: _read(path) for path in notebooks}
    known = {path: parameter_names(document) for path, document in documents.items()}
    for name in given:
        if not any(name in names for names in known.values()):
            there = ", ".join(sorted(set().union(*known.values())))
            raise RegressError(f"no notebook has a parameter {name!r}: there are {there}")
    outputs = _outputs(notebooks, out)
    return [
        Job(
            path=path,
            output=outputs[path],
            parameters={name: value for name, value in given.items() if name in known[path]},
            alone=bool(_own(documents[path]).get("alone")),
            missing=_missing(path, _own(documents[path])),
            timeout=timeout,
        )
        for path in notebooks
    ]


def parameter_names(document: dict[str, Any]) -> set[str]:
    """The names that the parameters cell assigns."""
    import ast

    names: set[str] = set()
    for cell in document["cells"]:
        if PARAMETERS_TAG in cell["metadata"].get("tags", ()):
            for statement in ast.parse("".join(cell["source"])).body:
                targets = statement.targets if isinstance(statement, ast.Assign) else []
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if not isinstance(document["cells"], list):
            raise TypeError("its cells are no list")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RegressError(f"{path} is not a notebook: {error}") from None
    return document


def _own(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document.get("metadata", {}).get("rafka_lab", {})
    return found


def _missing(path: Path, own: dict[str, Any]) -> str:
    for need in own.get("needs", ()):
        if need not in _NEEDS:
            raise RegressError(f"{path} needs {need!r}, which nobody knows: use {', '.join(_NEEDS)}")
        is_there, hint = _NEEDS[need]
        if not is_there():
            return hint
    return ""


def _outputs(notebooks: list[Path], out: Path) -> dict[Path, Path]:
    """A file for each; two of the same name are told apart by their folders."""
    names: dict[str, list[Path]] = {}
    for path in notebooks:
        names.setdefault(path.stem, []).append(path)
    return {
        path: out
        / (f"{path.stem}.ipynb" if len(names[path.stem]) == 1 else f"{path.resolve().parent.name}-{path.name}")
        for path in notebooks
    }


def run_all(jobs: list[Job], workers: int) -> Iterator[Outcome]:
    """Outcomes as they come: first those that may run side by side, then the ones that want to be alone."""
    for job in jobs:
        if job.missing:
            yield Outcome(job=job, status="skipped", error=job.missing)
    ready = [job for job in jobs if not job.missing]
    # Spawned: a kernel's client keeps threads and sockets that must not be forked.
    context = get_context("spawn")
    for group, width in (([job for job in ready if not job.alone], workers), ([job for job in ready if job.alone], 1)):
        if not group:
            continue
        with ProcessPoolExecutor(min(width, len(group)), mp_context=context) as pool:
            running: dict[Future[Outcome], Job] = {pool.submit(run_one, job): job for job in group}
            for done in as_completed(running):
                yield _result(done, running[done])


def _result(done: "Future[Outcome]", job: Job) -> Outcome:
    try:
        return done.result()
    except Exception as error:  # noqa: BLE001 - a runner that dies is a failed notebook, and the others go on
        return Outcome(job=job, status="failed", error=f"the notebook could not be run: {error!r}")


def run_one(job: Job) -> Outcome:
    """Runs a notebook and writes it, executed, beside its page."""
    from lab.regress_pages import write_page
    from lab.regress_papermill import execute

    begun = time.monotonic()
    with _own_log(job.output.with_suffix(".log")):
        failure = execute(job)
    seconds = time.monotonic() - begun
    write_page(job.output)
    if failure is None:
        return Outcome(job=job, status="passed", seconds=seconds)
    return Outcome(
        job=job, status="failed", seconds=seconds, cell=failure.cell, source=failure.source, error=failure.error
    )


@contextmanager
def _own_log(path: Path) -> Iterator[None]:
    """What kernels and nodes write to stderr goes to a file of the notebook's own, and not between two results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    with path.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
