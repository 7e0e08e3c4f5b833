"""`%kcat` in a shell, against a real cluster and beside the real kcat."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from IPython.core.error import UsageError

from lab.magics import running_lab
from lab.widgets import RecordStream
from rafka_lab import Kafka, Lab

INPUT = "k1:v1\nnokey\n\n:v3\nk4:\nk5:a:b\n"


def run(shell: Any, line: str) -> Any:
    return shell.run_line_magic("kcat", line)


@pytest.mark.parametrize("flags", ["-K:", "-K: -Z", "-K: -H a=1 -H b", "-D: -k fixed", "-z zstd", "-z lz4 -c 2"])
def test_the_same_input_is_stored_as_by_kcat(
    shell: Any, cluster: Lab, topic: str, program: Callable[[str], str], flags: str
) -> None:
    shell.run_cell_magic("kcat", f"-P -t {topic}-ours -p 0 {flags}", INPUT)
    command = [program("kcat"), "-b", cluster.bootstrap, "-P", "-t", f"{topic}-theirs", "-p", "0", *flags.split()]
    subprocess.run(command, input=INPUT.encode(), check=True, capture_output=True)
    same = ["partition", "offset", "key", "value", "headers"]
    ours, theirs = cluster.fetch(f"{topic}-ours"), cluster.fetch(f"{topic}-theirs")
    assert len(ours) > 1
    assert ours[same].equals(theirs[same])


@pytest.mark.parametrize(
    "flags",
    [
        "-e -J",
        "-e -K:",
        "-e -K: -Z",
        r"-e -f '%t %p %o %k %K %s %S %T %h\n'",
        r"-e -f '%s|\x41' -Z",
        r"-e -D '\n--\n'",
        "-e -o 2 -J",
        "-e -o -2 -J",
        "-c 2 -J",
        "-e -o beginning -c 1 -J",
    ],
)
def test_the_same_records_are_printed_as_by_kcat(
    shell: Any, cluster: Lab, topic: str, program: Callable[[str], str], flags: str
) -> None:
    shell.run_cell_magic("kcat", f"-P -t {topic} -p 0 -K: -H a=1 -H b", INPUT)
    line = f"-C -t {topic} -p 0 {flags}"
    command = [program("kcat"), "-q", "-b", cluster.bootstrap, *shlex.split(line)]
    theirs = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
    assert repr(run(shell, line)) == theirs
    assert theirs


def test_a_consumption_is_a_frame_with_trace_ids(shell: Any, cluster: Lab, topic: str) -> None:
    sent = cluster.produce(topic, [{"key": "k", "value": str(n), "partition": n % 2} for n in range(6)])
    shell.run_cell(f"found = %kcat -C -t {topic} -e")
    found = shell.user_ns["found"].sort_values(["partition", "offset"])
    assert isinstance(found, pd.DataFrame)
    assert found["value"].tolist() == ["0", "2", "4", "1", "3", "5"]
    assert set(found["trace_id"]) == set(sent["trace_id"])
    assert "<table" in run(shell, f"-C -t {topic} -e")._repr_html_()


def test_metadata_and_offsets_by_time(shell: Any, cluster: Lab, topic: str) -> None:
    cluster.produce(topic, [{"value": str(n), "timestamp": 1_700_000_000_000 + n, "partition": 0} for n in range(5)])
    listed = run(shell, f"-L -t {topic}")
    assert listed["partition"].tolist() == [0, 1]
    assert f'"topic":"{topic}"' in repr(run(shell, "-L -J"))
    asked = run(shell, f"-Q -t {topic}:0:1700000000003 -t {topic}:1:0")
    assert asked["offset"].tolist() == [3, -1]
    ranged = run(shell, f"-C -t {topic} -p 0 -o s@1700000000001 -o e@1700000000003")
    assert ranged["value"].tolist() == ["1", "2"]


def test_other_brokers_are_taken_by_b(shell: Any, cluster: Lab, topic: str) -> None:
    cluster.produce(topic, "x")
    del shell.user_ns["lab"]
    found = run(shell, f"-b {cluster.bootstrap} -C -t {topic} -e")
    assert found["value"].tolist() == ["x"]
    assert "trace_id" not in found


@pytest.fixture
def with_groups() -> Iterator[Kafka]:
    """librdkafka's own mock cluster, which has consumer groups; it lives as long as the client that made it."""
    owner = Producer({"test.mock.num.brokers": "1", "bootstrap.servers": "mock", "log_level": "0"})
    broker = next(iter(owner.list_topics(timeout=10).brokers.values()))
    yield Kafka(f"{broker.host}:{broker.port}")
    owner.flush(1)


def test_a_group_reads_each_record_once_and_goes_on_where_it_was(shell: Any, with_groups: Kafka, topic: str) -> None:
    with_groups.produce(topic, [f"early {number}" for number in range(20)])
    # The mock cluster waits for a member that has left as long as for one that is lost.
    line = f"-b {with_groups.bootstrap} -G readers {topic} -e -X session.timeout.ms=6000"
    assert sorted(run(shell, line)["value"]) == sorted(f"early {number}" for number in range(20))
    with_groups.produce(topic, ["late"])
    assert run(shell, line)["value"].tolist() == ["late"]


def test_a_group_reads_several_topics_and_stops_at_the_count(shell: Any, with_groups: Kafka, topic: str) -> None:
    for name in ("a", "b"):
        with_groups.produce(f"{topic}-{name}", [name] * 5)
    found = run(shell, f"-b {with_groups.bootstrap} -G readers {topic}-a {topic}-b -c 10")
    assert sorted(found["topic"]) == [f"{topic}-a"] * 5 + [f"{topic}-b"] * 5
    assert len(run(shell, f"-b {with_groups.bootstrap} -G three {topic}-a -c 3")) == 3


def test_an_endless_group_is_stopped_by_its_button(shell: Any, with_groups: Kafka, topic: str) -> None:
    with_groups.produce(topic, "one")
    stream = run(shell, f"-b {with_groups.bootstrap} -G readers {topic}")
    deadline = time.monotonic() + 30
    while stream.count < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    stream.stop()
    assert stream.frame["value"].tolist() == ["one"]
    assert not stream.trouble


def test_a_broker_without_groups_is_said_at_once(shell: Any, cluster: Lab, topic: str) -> None:
    cluster.produce(topic, "x")
    with pytest.raises(UsageError, match=r"this broker has no consumer groups .*: -C -t TOPIC reads without one"):
        run(shell, f"-G readers {topic} -e")
    stream = run(shell, f"-G readers {topic}")
    stream._thread.join(20)
    assert "this broker has no consumer groups" in stream.trouble
    assert not stream.running


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-Y", "option -Y not recognized"),
        ("-C -t 'open", "open quote"),
        ("-C -t nowhere -e", "Topic nowhere error: Broker: Unknown topic or partition"),
        ("-P -t t", "nothing to send"),
        ("-b 127.0.0.1:1 -m 1 -L", "Failed to acquire metadata from 127.0.0.1:1"),
        ("-C -t t -e -X no.such.setting=1", "No such configuration property"),
        ("-Q -t wrong", "expected topic:partition:milliseconds"),
    ],
)
def test_what_goes_wrong_is_one_line(shell: Any, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(shell, line)
    assert said in str(caught.value)
    assert str(caught.value).startswith("kcat: ")


def test_a_partition_that_is_not_there_is_said_as_kcat_says_it(shell: Any, cluster: Lab, topic: str) -> None:
    cluster.produce(topic, "x")
    with pytest.raises(UsageError, match=r"with partitions 0\.\.1\): partition 7 does not exist"):
        run(shell, f"-C -t {topic} -p 7 -e")


def test_help_and_version_are_printed(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(shell, "-h") is None
    assert run(shell, "-V") is None
    said = capsys.readouterr().out
    assert "-X NAME=VALUE" in said
    assert "librdkafka" in said


def test_an_endless_consumption_goes_on_beside_the_notebook_until_it_is_stopped(
    shell: Any, cluster: Lab, topic: str
) -> None:
    cluster.produce(topic, ["one", "two"])
    stream = run(shell, rf"-C -t {topic} -f '%s\n'")
    assert isinstance(stream, RecordStream)
    cluster.produce(topic, "three")
    deadline = time.monotonic() + 30
    while stream.count < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    stream.stop()
    assert stream.running is False
    assert sorted("".join(stream.lines).split()) == ["one", "three", "two"]
    assert sorted(stream.frame["value"]) == ["one", "three", "two"]
    assert "three" in stream.static_html()


def test_a_stream_that_fails_says_so(shell: Any, cluster: Lab) -> None:
    stream = run(shell, "-C -t nowhere-at-all")
    stream.stop()
    assert "Unknown topic" in stream.trouble


def test_the_lab_that_is_meant_is_found_or_asked_for(shell: Any, cluster: Lab) -> None:
    assert running_lab(shell) is cluster
    shell.user_ns["other"] = shell.user_ns.pop("lab")
    assert running_lab(shell) is cluster
    shell.user_ns.clear()
    with pytest.raises(Exception, match=r"no lab is running: lab = Lab\(\)\.start\(\)"):
        running_lab(shell)


def test_a_shown_lab_is_a_live_panel_and_is_not_kept_by_the_history(shell: Any, cluster: Lab) -> None:
    shown = shell.display_formatter.format(cluster)[0]
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert cluster.bootstrap in shown["text/html"]
    result = shell.run_cell("lab", store_history=True)
    assert result.result is cluster
    assert cluster not in shell.user_ns.get("Out", {}).values()
    assert shell.user_ns.get("_") is not cluster


def test_an_error_of_the_library_is_short(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = shell.run_cell("lab.fetch('nowhere')")
    assert result.error_in_exec is not None
    said = capsys.readouterr().out
    assert "there is no topic 'nowhere'" in said
    assert "client.py" not in said
