"""`rafka-lab profile`: flame graphs of gateway and broker under each workload. Exit code 2: it could not run."""

import argparse
import sys
from pathlib import Path

from rafka_lab.errors import RafkaLabError

EXIT_USAGE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from rafka_lab.bench.profile import WORKLOADS

    names = list(WORKLOADS)
    parser.add_argument(
        "--workload", nargs="+", default=[], choices=names, metavar="NAME", help=f"which (all of {', '.join(names)})"
    )
    parser.add_argument("--out", type=Path, default=Path("profiles"), metavar="DIR", help="for SVG files (profiles/)")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each is looked at (5)")
    parser.add_argument("--native", action="store_true", help="frames of iroh and other native code as well")


def run(arguments: argparse.Namespace) -> int:
    from rafka_lab.bench.profile import profile

    try:
        for path in profile(arguments.workload, arguments.out, arguments.seconds, native=arguments.native):
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()
    except (RafkaLabError, OSError) as error:
        sys.stderr.write(f"rafka-lab profile: {error}\n")
        return EXIT_USAGE
    return 0
