"""`rafka-lab regress [--out DIR] [-p NAME VALUE] [NOTEBOOK...]`: notebooks as tests. Exit code 1: one failed."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from lab.errors import RegressError
from lab.regress import DEFAULT_TIMEOUT, Outcome, find_notebooks, make_jobs, run_all
from lab.regress_pages import write_index, write_junit

EXIT_FAILED = 1
EXIT_USAGE = 2
# A notebook keeps a kernel, three nodes and a producer busy.
_CORES_PER_NOTEBOOK = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK", help="files or folders (notebooks/)")
    parser.add_argument("--out", type=Path, default=Path("regress-out"), metavar="DIR", help="where pages go")
    parser.add_argument(
        "-p", dest="parameters", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="a parameter"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="notebooks at the same time (half of the cores)")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="SECONDS", help="for one cell")


def run(arguments: argparse.Namespace) -> int:
    try:
        return _run(arguments)
    except RegressError as error:
        sys.stderr.write(f"rafka-lab regress: {error}\n")
        return EXIT_USAGE


def _run(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    workers = arguments.jobs or max(1, (os.cpu_count() or 1) // _CORES_PER_NOTEBOOK)
    if workers < 1:
        raise RegressError(f"--jobs {workers}: at least one")
    given = {name: value_of(text) for name, text in arguments.parameters}
    jobs = make_jobs(find_notebooks(arguments.notebooks), out, given, arguments.timeout)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RegressError(f"{out} cannot be written to: {error.strerror}") from None
    outcomes: list[Outcome] = []
    for outcome in run_all(jobs, workers):
        outcomes.append(outcome)
        _say(outcome, len(outcomes), len(jobs))
    order = {job.name: number for number, job in enumerate(jobs)}
    outcomes.sort(key=lambda outcome: order[outcome.job.name])
    index = write_index(outcomes, out)
    write_junit(outcomes, out)
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    sys.stdout.write(f"{len(outcomes) - failed} of {len(outcomes)} fine; see {index}\n")
    return EXIT_FAILED if failed else 0


def value_of(text: str) -> Any:
    """A value as JSON if it is some (`3`, `true`, `["all", "1"]`), else as the text it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _say(outcome: Outcome, number: int, total: int) -> None:
    place = f" cell {outcome.cell}:" if outcome.cell else ""
    why = f" {place} {outcome.first_line or outcome.error}" if outcome.status != "passed" else ""
    sys.stdout.write(f"[{number}/{total}] {outcome.status:<7} {outcome.job.name} {outcome.seconds:.1f} s{why}\n")
    sys.stdout.flush()
