"""The `rafka-lab` command: one module per subcommand, imported when it is called, so that none pays for another."""

import argparse
import importlib
import sys

# A subcommand is a module with `add_arguments(parser)` and `run(arguments) -> exit code`.
SUBCOMMANDS = {
    "bench": ("lab.bench_command", "measure, beside Apache Kafka"),
    "doctor": ("lab.doctor_command", "what is there, what is missing, and how to get it"),
    "pipeline": ("lab.pipeline_command", "logs to tables and a report, on Spark"),
    "profile": ("lab.profile_command", "flame graphs of gateway and broker"),
    "regress": ("lab.regress_command", "run notebooks as tests"),
    "up": ("lab.up_command", "run a cluster in the foreground"),
    "wal": ("lab.wal_command", "look into a log, verify it, repair it"),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] not in SUBCOMMANDS:
        return _usage(words)
    name = words[0]
    module = importlib.import_module(SUBCOMMANDS[name][0])
    parser = argparse.ArgumentParser(prog=f"rafka-lab {name}", description=f"{SUBCOMMANDS[name][1]}.")
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(words[1:])))


def _usage(words: list[str]) -> int:
    wanted = bool(words) and words[0] in ("-h", "--help")
    out = sys.stdout if wanted else sys.stderr
    if words and not wanted:
        out.write(f"rafka-lab: no command {words[0]!r}\n")
    out.write("usage: rafka-lab COMMAND ...\n")
    for name, (_, what) in SUBCOMMANDS.items():
        out.write(f"  {name:<8} {what}\n")
    return 0 if wanted else 2
