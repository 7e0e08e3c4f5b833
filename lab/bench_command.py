"""`rafka-lab bench`: benchmarks, beside Apache Kafka if asked. Exit code 1: a target was missed, 2: could not run."""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rafka_lab.bench.suites import SUITES
from rafka_lab.errors import RafkaLabError

if TYPE_CHECKING:
    from rafka_lab.bench.results import Check, Run, Verdict

EXIT_MISSED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # as shells have it
AUTO = "auto"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "suites:\n" + "\n".join(f"  {name:<10} {what}" for name, what in SUITES.items())
    parser.add_argument("--suite", nargs="+", default=[], choices=list(SUITES), metavar="NAME", help="which (all)")
    parser.add_argument(
        "--peer",
        metavar="HOST:PORT",
        help="a Kafka cluster to compare with, in the same run; `kafka` starts an Apache Kafka, `auto` does where Java "
        "and Maven are there",
    )
    parser.add_argument("--quick", action="store_true", help="few workloads, short rounds; under 10 minutes in all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the tables into that page (BENCHMARKS.md)")
    parser.add_argument(
        "--from",
        dest="files",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="measure nothing: take the results of earlier runs, the last one where several have a suite",
    )


def run(arguments: argparse.Namespace) -> int:
    before = signal.signal(signal.SIGTERM, _on_signal)
    try:
        return _run(arguments)
    except (RafkaLabError, OSError) as error:
        sys.stderr.write(f"rafka-lab bench: {error}\n")
        return EXIT_USAGE
    except KeyboardInterrupt:
        sys.stderr.write("rafka-lab bench: interrupted\n")
        return EXIT_INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    """As Ctrl-C: whatever was started is ended, and gigabytes of temporary files go."""
    raise KeyboardInterrupt


def _run(arguments: argparse.Namespace) -> int:
    from rafka_lab.bench import markdown
    from rafka_lab.bench.results import load, merge, save

    for path in filter(None, (arguments.json, arguments.markdown)):
        if not path.absolute().parent.is_dir():  # before minutes of measuring
            raise RafkaLabError(f"there is no folder {path.parent} to write {path.name} to")
    result = merge([load(path) for path in arguments.files]) if arguments.files else _measure(arguments)
    if arguments.json:
        save(result, arguments.json)
    if arguments.markdown:
        markdown.write(result, arguments.markdown)
    return _verdict(result.targets, [check for check in result.checks if check.met is False])


def _measure(arguments: argparse.Namespace) -> "Run":
    from rafka_lab.bench.results import save
    from rafka_lab.bench.run import run_suites

    path: Path | None = arguments.json
    return run_suites(
        arguments.suite,
        quick=arguments.quick,
        peer=_peer(arguments.peer),
        command=_command(arguments),
        after_suite=None if path is None else lambda run: save(run, path),
    )


def _peer(given: str | None) -> str | None:
    from rafka_lab.bench.sides import KAFKA
    from rafka_lab.peers import kafka_is_there

    if given != AUTO:
        return given
    if kafka_is_there():
        return KAFKA
    sys.stdout.write("Java or Maven is missing, so there is no Apache Kafka to compare with (see rafka-lab doctor)\n")
    return None


def _command(arguments: argparse.Namespace) -> str:
    words = ["rafka-lab", "bench"]
    words += ["--suite", *arguments.suite] if arguments.suite else []
    words += ["--peer", arguments.peer] if arguments.peer else []
    words += ["--quick"] if arguments.quick else []
    words += ["--json", arguments.json.name] if arguments.json else []
    words += ["--markdown", arguments.markdown.name] if arguments.markdown else []
    return shlex.join(words)


def _verdict(targets: "list[Verdict]", failed: "list[Check]") -> int:
    from rafka_lab.bench.report import shown

    if targets:
        sys.stdout.write("\n== targets, as ratios to the peer\n")
    for verdict in targets:
        word = "met" if verdict.met else "MISSED"
        sys.stdout.write(f"{verdict.name:<58} {shown(verdict.ratio):<22} {verdict.target:<8} {word}\n")
    for check in failed:
        sys.stdout.write(f"{check.suite}: {check.name}: {check.value:,.2f} {check.unit}, {check.target} MISSED\n")
    return EXIT_MISSED if failed or any(not verdict.met for verdict in targets) else 0
