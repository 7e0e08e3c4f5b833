"""Power loss at any moment: the log always opens, all that was promised is there, nothing that was never sent is."""

import os
import random
from pathlib import Path

import pytest

from tests.wal.crash_workload import two_lives

LIVES = 6
CRASHES = 40


@pytest.mark.parametrize("life", range(LIVES))
def test_any_crash_state_opens_with_all_that_was_promised(memory_path: Path, life: int) -> None:
    assert two_lives(memory_path / "life", seed=life, crashes=CRASHES) >= CRASHES


@pytest.mark.soak
def test_ten_thousand_crash_states_open_with_all_that_was_promised(memory_path: Path) -> None:
    """A failure names its seeds; `two_lives` repeats them."""
    random_ = random.Random(os.environ.get("RAFKA_LAB_SEED"))
    checked = 0
    while checked < 10_000:
        checked += two_lives(memory_path / f"{checked}", seed=random_.getrandbits(32), crashes=100)
