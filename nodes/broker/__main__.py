"""`python -m nodes.broker`"""

import sys

from nodes.broker.program import EXIT_LOG_FAILED, LogFailedError, flags, main
from nodes.process import run_program

if __name__ == "__main__":
    try:
        run_program(flags(), main)
    except LogFailedError as error:
        sys.stderr.write(f"nodes.broker: the log failed, so the broker ended: {error}\n")
        sys.exit(EXIT_LOG_FAILED)
