"""Writes constraints.txt: every version that a fresh install of `.[dev]` resolves to, and nothing about where from."""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Every version of the tested installation. Made by `make lock`; edit pyproject.toml, not this file.\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[dev]"], check=True)
        frozen = subprocess.run(
            [python, "-m", "pip", "freeze", "--exclude-editable"], check=True, capture_output=True, text=True
        ).stdout
    pins = [line for line in frozen.splitlines() if "==" in line]
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(pins) + "\n")


if __name__ == "__main__":
    main()
