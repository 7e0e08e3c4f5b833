"""`python -m bench [suite ...]`: runs the named suites, all without a name; exits 1 when a target is missed.

A suite is a module of this package with `run(report: Report) -> None`.
"""

import importlib
import sys

from bench.report import Report

SUITES = ("wal", "mesh", "cluster", "traces", "tracing", "spark")


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(SUITES))
    if unknown:
        sys.stderr.write(f"no suite {', '.join(unknown)}; there are: {', '.join(SUITES)}\n")
        return 2
    report = Report()
    for name in names or SUITES:
        sys.stdout.write(f"\n== {name}\n")
        importlib.import_module(f"bench.{name}").run(report)
    if report.missed:
        sys.stdout.write(f"\n{len(report.missed)} target(s) missed: {'; '.join(report.missed)}\n")
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
