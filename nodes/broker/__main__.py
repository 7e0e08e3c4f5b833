"""`python -m nodes.broker`"""

from nodes.broker.program import run

if __name__ == "__main__":
    run()
