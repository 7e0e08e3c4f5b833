"""A lab as HTML, its live rates, and that nothing is imported or kept which nobody asked for."""

import gc
import subprocess
import sys
import time
import weakref

from rafka_lab import Lab
from rafka_lab.display import size


def test_a_lab_shows_its_nodes_and_what_they_hold(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, ["a", "b"])
    shown = shared_lab._repr_html_()
    assert shared_lab.bootstrap in shown
    for name in shared_lab.nodes:
        assert f"</span>{name}</td>" in shown
    assert "<script" not in shown
    assert "lab.start()" in Lab()._repr_html_()


def test_rates_are_what_was_written_since_the_last_look(shared_lab: Lab, topic: str) -> None:
    before = {node.name: node for node in shared_lab.rates()}
    begun = time.monotonic()
    shared_lab.produce(topic, ["x" * 100] * 1000)
    after = {node.name: node for node in shared_lab.rates()}
    seconds = time.monotonic() - begun
    assert sum(after[name].records - before[name].records for name in after) == 1000
    assert sum(node.records_per_s for node in after.values()) >= 1000 / seconds * 0.5
    assert after["gateway"].memory_mb > 10
    assert after["gateway"].address == shared_lab.bootstrap


def test_sizes_are_for_people() -> None:
    assert [size(count) for count in (0, 999, 1000, 1_234_567, 5e12)] == ["0 B", "999 B", "1.0 kB", "1.2 MB", "5.0 TB"]


def test_the_library_is_imported_without_what_is_slow() -> None:
    slow = ("pandas", "altair", "confluent_kafka", "IPython", "pyspark", "tqdm")
    code = f"import rafka_lab.lab, sys; print([name for name in {slow!r} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def test_a_lab_that_nobody_holds_ends_at_once_whatever_was_used_of_it() -> None:
    lab = Lab().start()
    lab.produce("t", "x")
    lab.fetch("t")
    lab.rates()
    lab.wal.verify()
    lab.faults.timeline()
    assert lab.traces.available
    node = lab.nodes["broker-0"]
    gone = weakref.ref(lab)
    gc.disable()  # a cycle would keep the lab until a collection
    try:
        del lab
        assert gone() is None
    finally:
        gc.enable()
    assert not node.is_alive
