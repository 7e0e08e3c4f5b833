"""What the log does not open: each is one clear error that names the file and the place, and changes nothing."""

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from tests.wal.logs import SMALL, FastDisk, batch, index_files, kill, log_files, partition_of, put, topic
from wal.control import ValuesChanged, encode_body
from wal.entry import EntryHeader, Kind
from wal.errors import (
    ForeignFileError,
    LogDamagedError,
    LogLockedError,
    LogUnwritableError,
    UnknownFormatError,
    WalError,
)
from wal.log import SingleWal
from wal.segment import FILE_HEADER_SIZE, SegmentFile, pack_file_header
from wal.settings import MAX_SEGMENT_BYTES, WalSettings
from wal.writer import build_entry

ROOT = Path(__file__).parents[2]
TOPIC = topic(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cleanly closed log of several segments."""
    with SingleWal.open(tmp_path / "log", SMALL, FastDisk()) as log:
        log.create_topic(TOPIC)
        for n in range(80):
            put(log, TOPIC, batch(b"%d" % n))
        assert len(log.segments) > 2
    return tmp_path / "log"


def refused(folder: Path, kind: type[WalError]) -> WalError:
    """The error; the files must be as before."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".log", ".oidx")}
    with pytest.raises(kind) as caught:
        SingleWal.open(folder, SMALL, FastDisk())
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".log", ".oidx")}
    assert after == before, "a refusal must not change the log"
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.path, copy.position) == (str(caught.value), caught.value.path, caught.value.position)
    return caught.value


def test_a_second_writer_in_this_or_another_process_is_told_who_has_it(folder: Path) -> None:
    program = (
        "import sys; from wal.log import SingleWal\n"
        "log = SingleWal.open(sys.argv[1]); print('open', flush=True); sys.stdin.read(); log.close()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"open\n"
    with pytest.raises(LogLockedError, match=f"process {other.pid}"):
        SingleWal.open(folder, SMALL)
    other.communicate()
    with SingleWal.open(folder, SMALL, FastDisk()):
        with pytest.raises(LogLockedError, match=f"process {os.getpid()}"):
            SingleWal.open(folder, SMALL)
    SingleWal.open(folder, SMALL, FastDisk()).close()


def test_a_lock_file_left_behind_does_not_lock(folder: Path) -> None:
    (folder / "lock").write_text("99999\n")
    SingleWal.open(folder, SMALL, FastDisk()).close()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become a user who may not write there")
def test_a_folder_that_may_not_be_written_is_refused(folder: Path) -> None:
    program = (
        "import sys, os; from wal.log import SingleWal; from wal.errors import LogUnwritableError\n"
        "os.setuid(65534)\n"
        "for place in sys.argv[1:]:\n"
        "    try: SingleWal.open(place)\n"
        "    except LogUnwritableError as error: print(error)\n"
    )
    for above in folder.parents:
        if above.owner() == "root" and above.is_relative_to("/tmp") and above != Path("/tmp"):
            above.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(folder.parent / "new")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    for line, place in zip(done.stdout.splitlines(), (folder, folder.parent / "new"), strict=True):
        assert str(place) in line
        assert "Permission denied" in line
        assert "choose one that you may write to" in line


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("not a folder")
    for place in (tmp_path / "log", tmp_path / "log" / "below"):
        with pytest.raises(LogUnwritableError, match="log"):
            SingleWal.open(place)
    assert (tmp_path / "log").read_text() == "not a folder"


def test_a_foreign_file_with_a_segments_name_is_refused(folder: Path) -> None:
    newest = log_files(folder)[-1]
    for data in (b"", b"GIF89a" + bytes(100), b"RAFKAIDX" + bytes(100)):
        newest.write_bytes(data)
        error = refused(folder, ForeignFileError)
        assert error.path == str(newest)
        assert newest.name in str(error)
    newest.write_bytes(b"RAFKAWAL")
    assert "cut off inside its header" in str(refused(folder, LogDamagedError))


def test_other_files_in_the_folder_are_left_alone(folder: Path) -> None:
    strangers = {"notes.txt": b"hello", "1.log": b"other", "backup.oidx": b"x", "00000000001.log": b"y"}
    for name, data in strangers.items():
        (folder / name).write_bytes(data)
    with SingleWal.open(folder, SMALL, FastDisk()) as log:
        assert len(partition_of(log, TOPIC)) == 80
    assert {name: (folder / name).read_bytes() for name in strangers} == strangers


def test_a_renamed_segment_is_refused(folder: Path) -> None:
    newest = log_files(folder)[-1]
    renamed = folder / f"{int(newest.stem) + 1:010d}.log"
    shutil.copy(newest, renamed)
    error = refused(folder, ForeignFileError)
    assert f"segment {int(newest.stem)}" in str(error)


@pytest.mark.parametrize("which", [0, -1])
def test_a_newer_format_version_is_refused_by_name(folder: Path, which: int) -> None:
    path = log_files(folder)[which]
    data = bytearray(path.read_bytes())
    data[8:10] = (2).to_bytes(2, "little")
    data[60:64] = crc32c(bytes(data[:60])).to_bytes(4, "little")
    path.write_bytes(data)
    error = refused(folder, UnknownFormatError)
    assert "format version 2" in str(error)
    assert (error.path, error.position) == (str(path), 8)


def add_entry(folder: Path, kind: int, body: bytes = b"") -> int:
    """An entry behind all others, as a later version may have written; where it stands."""
    path = log_files(folder)[-1]
    file = SegmentFile(path)
    position = file.size()
    header = EntryHeader(0, 0, 0, kind)
    built = build_entry(header, file.seed, position, position, body)
    with path.open("ab") as out:
        out.write(b"".join(built.buffers))
    return position


def test_an_unknown_kind_that_must_not_be_skipped_is_refused(folder: Path) -> None:
    position = add_entry(folder, 0x42, b"what a later version knows")
    error = refused(folder, UnknownFormatError)
    assert (error.path, error.position) == (str(log_files(folder)[-1]), position)
    assert "0x42" in str(error)


def test_an_unknown_kind_that_may_be_skipped_is_skipped_and_kept(folder: Path) -> None:
    add_entry(folder, 0x80, b"what a later version knows")
    add_entry(folder, Kind.VALUES_CHANGED, encode_body(ValuesChanged(values={"after": "it"})))
    for _ in range(2):
        with SingleWal.open(folder, SMALL, FastDisk()) as log:
            assert log.state.values == {"after": "it"}
            assert len(partition_of(log, TOPIC)) == 80
            assert [bytes(e.body) for e in log.entries() if e.header.kind == 0x80] == [b"what a later version knows"]


def test_a_control_entry_with_a_body_of_something_else_is_refused(folder: Path) -> None:
    position = add_entry(folder, Kind.TOPIC_CREATED, b'{"topic": 1}')
    error = refused(folder, LogDamagedError)
    assert (error.path, error.position) == (str(log_files(folder)[-1]), position)


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_sealed_segment_is_refused(folder: Path, which: int) -> None:
    path = log_files(folder)[which]
    path.unlink()
    error = refused(folder, LogDamagedError)
    assert "missing" in str(error)
    assert (error.path, error.position) == (str(path), 0)


def test_a_missing_newest_segment_is_refused(folder: Path) -> None:
    path = log_files(folder)[-1]
    path.unlink()
    error = refused(folder, LogDamagedError)
    assert "missing" in str(error)
    assert error.path == str(path)


def test_a_folder_with_indexes_alone_is_not_a_new_log(folder: Path) -> None:
    for path in log_files(folder):
        path.unlink()
    assert "missing" in str(refused(folder, LogDamagedError))


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:200]])
def test_a_sealed_segment_of_another_size_is_refused(folder: Path, change: Callable[[bytes], bytes]) -> None:
    path = log_files(folder)[0]
    path.write_bytes(change(path.read_bytes()))
    error = refused(folder, LogDamagedError)
    assert error.path == str(path)
    assert error.position is not None


def test_a_segment_whose_first_entry_is_gone_is_refused(folder: Path) -> None:
    newest = log_files(folder)[-1]
    data = newest.read_bytes()
    newest.write_bytes(data[:FILE_HEADER_SIZE])
    for index in index_files(folder):
        index.unlink()
    error = refused(folder, LogDamagedError)
    assert error.path == str(newest)
    assert error.position == FILE_HEADER_SIZE


def test_a_killed_log_without_its_last_index_row_is_not_a_shorter_log(folder: Path) -> None:
    log = SingleWal.open(folder, SMALL, FastDisk())
    put(log, TOPIC, batch(b"last"))
    kill(log)
    newest = index_files(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-112])
    with SingleWal.open(folder, SMALL, FastDisk()) as log:
        assert len(partition_of(log, TOPIC)) == 81


@pytest.mark.parametrize("size", [0, -1, 100, MAX_SEGMENT_BYTES + 1])
def test_a_segment_size_that_cannot_work_is_refused(size: int) -> None:
    with pytest.raises(WalError, match=f"segment_bytes is {size}"):
        WalSettings(segment_bytes=size)


def test_the_newest_segments_header_belongs_to_its_file(folder: Path) -> None:
    """A header with a right CRC of another log makes every entry invalid: damage, and never an empty log."""
    newest = log_files(folder)[-1]
    data = newest.read_bytes()
    header = SegmentFile(newest).header
    newest.write_bytes(pack_file_header(b"RAFKAWAL", header._replace(log_id=bytes(16))) + data[FILE_HEADER_SIZE:])
    error = refused(folder, LogDamagedError)
    assert error.path == str(newest)
