"""The brokers' logs as DataFrames, against what clients fetch."""

import pytest

from rafka_lab import Lab, LabError
from rafka_lab.errors import UnknownTopicError

COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers", "trace_id"]


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_records_on_the_disk_are_those_that_are_fetched(shared_lab: Lab, topic: str, compression: str) -> None:
    rows = [{"key": f"k{n}", "value": f"v{n}" * 9, "headers": {"n": str(n)}} for n in range(300)]
    shared_lab.produce(topic, rows, compression=compression)
    assert shared_lab.wal.frame(topic)[COLUMNS].equals(shared_lab.fetch(topic)[COLUMNS])
    assert set(shared_lab.wal.entries(topic)["codec"]) == {compression}


def test_entries_say_where_records_lie(shared_lab: Lab, topic: str) -> None:
    for number in range(3):
        shared_lab.produce(topic, [{"value": str(number), "partition": 0}])
    entries = shared_lab.wal.entries(topic)
    assert entries["base_offset"].tolist() == [0, 1, 2]
    line = entries.iloc[1]
    inside = shared_lab.wal.records(int(line["segment"]), int(line["position"]), str(line["broker"]))
    assert inside["value"].tolist() == ["1"]
    assert inside["trace_id"].tolist() == [line["trace_id"]]
    dump = shared_lab.wal.hexdump(int(line["segment"]), int(line["position"]), str(line["broker"]))
    shown = {text.split()[-1]: text for text in dump.splitlines()}
    assert line["trace_id"] in shown["trace_id"].replace(" ", "")
    assert int(line["bytes"]).to_bytes(4, "little").hex(" ") in shown["length"]
    assert f"{int(line['position']):08x}" in dump


def test_partitions_and_segments_add_up(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, [str(number) for number in range(100)])
    wal = shared_lab.wal
    parts = wal.partitions()
    assert parts[parts["topic"] == topic]["high_watermark"].sum() == 100
    assert set(wal.segments()["broker"]) == {"broker-0", "broker-1"}
    contents = wal.contents()
    assert contents["bytes"].sum() <= wal.segments()["bytes"].sum()
    assert (contents[contents["topic"] == topic]["next_offset"]).sum() == 100


def test_every_log_is_sound(shared_lab: Lab) -> None:
    verified = shared_lab.wal.verify()
    assert verified["sound"].tolist() == [True, True], verified["problems"].tolist()


def test_what_is_not_there_is_said(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, "x")
    with pytest.raises(UnknownTopicError, match=f"'nowhere'.*{topic}"):
        shared_lab.wal.frame("nowhere")
    with pytest.raises(LabError, match="no entry of segment 0 starts at 3"):
        shared_lab.wal.hexdump(0, 3)
    with pytest.raises(LabError, match="no segment 99"):
        shared_lab.wal.hexdump(99, 3)
    with pytest.raises(LabError, match="broker-9"):
        shared_lab.wal.hexdump(0, 3, "broker-9")


def test_a_log_is_read_while_it_is_written(shared_lab: Lab, topic: str) -> None:
    for number in range(5):
        shared_lab.produce(topic, str(number))
        assert len(shared_lab.wal.frame(topic)) == number + 1
