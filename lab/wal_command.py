"""`rafka-lab wal ls|cat|verify|repair DIR`: a log in words, without a broker. Exit code 1: something is wrong.

`ls`, `cat` and `verify` may run beside a broker; `repair` wants it stopped.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from wal.compression import Codec
from wal.entry import Kind
from wal.errors import WalError
from wal.reader import WalReader
from wal.records import Record, decode_records
from wal.repair import repair
from wal.segments import Entry, Position
from wal.verify import Verified, verify

# Longer keys and values are cut in the printed form; --json has them whole.
SHOWN_BYTES = 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (_, what) in ACTIONS.items():
        action = actions.add_parser(name, help=what, description=what)
        action.add_argument("folder", type=Path, metavar="DIR", help="the log's folder, with its .log files")
        action.add_argument("--json", action="store_true", help="one JSON document (cat: one a line)")
        if name == "cat":
            action.add_argument("--topic", help="only data of this topic")
            action.add_argument("--partition", type=int, help="only data of this partition")
            action.add_argument("--from", dest="start", type=_position, metavar="SEGMENT:POSITION", help="start there")
            action.add_argument("--limit", type=int, help="stop after so many entries")
            action.add_argument("--records", action="store_true", help="print the records of each batch too")
        if name == "repair":
            action.add_argument("target", type=Path, nargs="?", metavar="NEW", help="default: DIR-repaired")


def run(arguments: argparse.Namespace) -> int:
    try:
        return ACTIONS[arguments.action][0](arguments)
    except WalError as error:
        sys.stderr.write(f"rafka-lab wal {arguments.action}: {error}\n")
        return 1
    except BrokenPipeError:  # `| head` has seen enough
        sys.stderr.close()
        return 0


def _position(text: str) -> Position:
    try:
        segment, position = text.split(":")
        return Position(int(segment), int(position))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not SEGMENT:POSITION, such as 0:64") from None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _json(value: object) -> None:
    _say(msgspec.json.encode(value).decode())


def _ls(arguments: argparse.Namespace) -> int:
    reader = WalReader(arguments.folder)
    segments: list[dict[str, Any]] = [
        {
            "number": segment.number,
            "file": segment.file.path.name,
            "bytes": segment.end,
            "sealed": segment.sealed is not None,
            "partitions": len(segment.summaries),
            "batches": sum(part.entries for part in segment.summaries.values()),
        }
        for segment in reader.segments
    ]
    partitions = list(_partitions(reader))
    if arguments.json:
        _json({"folder": str(arguments.folder), "segments": segments, "partitions": partitions})
        return 0
    _table(["segment", "bytes", "state", "partitions", "batches"], [
        [s["file"], f"{s['bytes']:,}", "sealed" if s["sealed"] else "active", str(s["partitions"]), f"{s['batches']:,}"]
        for s in segments
    ])  # fmt: skip
    _say("")
    _table(["topic", "partition", "start", "end", "batches", "bytes"], [
        [p["topic"], str(p["partition"]), f"{p['log_start']:,}", f"{p['high_watermark']:,}", f"{p['batches']:,}",
         f"{p['bytes']:,}"]
        for p in partitions
    ])  # fmt: skip
    return 0


def _partitions(reader: WalReader) -> Iterator[dict[str, Any]]:
    for topic in sorted(reader.state.topics.values(), key=lambda record: (record.org_id, record.name)):
        for partition in range(len(topic.leaders)):
            key = (topic.topic_id.bytes, partition)
            state = reader.state.partition(*key)
            parts = [part for segment in reader.segments if (part := segment.summaries.get(key)) is not None]
            yield {
                "org_id": topic.org_id,
                "topic": topic.name,
                "topic_id": str(topic.topic_id),
                "partition": partition,
                "log_start": state.log_start,
                "high_watermark": state.high_watermark,
                "batches": sum(part.entries for part in parts),
                "bytes": sum(part.bytes for part in parts),
            }


def _table(names: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    for row in [names, *rows]:
        _say("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _cat(arguments: argparse.Namespace) -> int:
    reader = WalReader(arguments.folder)
    shown = 0
    for entry in reader.entries(arguments.start):
        if arguments.limit is not None and shown >= arguments.limit:
            break
        if _wanted(arguments, reader, entry):
            shown += 1
            _show_entry(arguments, reader, entry)
    return 0


def _wanted(arguments: argparse.Namespace, reader: WalReader, entry: Entry) -> bool:
    if arguments.topic is None and arguments.partition is None:
        return True
    if entry.header.kind != Kind.DATA:
        return False
    name = _topic_name(reader, entry.header.topic_id)
    return arguments.topic in (None, name) and arguments.partition in (None, entry.header.partition)


def _topic_name(reader: WalReader, topic_id: bytes) -> str:
    record = reader.state.topics.get(topic_id)
    return str(UUID(bytes=topic_id)) if record is None else record.name


def _show_entry(arguments: argparse.Namespace, reader: WalReader, entry: Entry) -> None:
    header = entry.header
    fields: dict[str, Any] = {"segment": entry.segment, "position": header.position, "kind": header.kind_name}
    records: list[Record] = []
    if header.kind == Kind.DATA:
        fields |= {
            "topic": _topic_name(reader, header.topic_id),
            "partition": header.partition,
            "base_offset": header.base_offset,
            "record_count": header.record_count,
            "bytes": header.length,
            "codec": Codec(header.codec).name.lower(),
            "max_timestamp": header.max_timestamp,
            "trace_id": header.trace_id.hex(),
        }
        if header.producer_id >= 0:
            fields |= {"producer_id": header.producer_id, "base_sequence": header.base_sequence}
        records = decode_records(entry.body) if arguments.records else []
    elif len(entry.body):
        fields["body"] = msgspec.json.decode(entry.body)
    if arguments.json:
        _json(fields | ({"records": records} if arguments.records and header.kind == Kind.DATA else {}))
        return
    place = f"{entry.segment}:{header.position}"
    rest = "  ".join(f"{name}={value}" for name, value in fields.items() if name not in ("segment", "position", "kind"))
    _say(f"{place:<14} {header.kind_name:<16} {rest}")
    for record in records:
        _say(f"    {record.offset:>10}  {record.timestamp}  {_shown(record.key)}  {_shown(record.value)}")


def _shown(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = repr(data[:SHOWN_BYTES])[1:]
    return text if len(data) <= SHOWN_BYTES else f"{text}... ({len(data)} bytes)"


def _verify(arguments: argparse.Namespace) -> int:
    if not arguments.folder.is_dir():
        raise WalError(f"there is no folder {arguments.folder}")
    result = verify(arguments.folder)
    if arguments.json:
        _json({"sound": result.sound} | msgspec.structs.asdict(result))
        return 0 if result.sound else 1
    for problem in result.problems:
        _say(f"{problem.path}:{problem.position}: {problem.what}")
    for gap in result.gaps:
        _say(f"topic {gap.topic_id} partition {gap.partition}: no offsets {gap.first_missing} to {gap.next_found - 1}")
    if result.torn_tail_bytes:
        _say(
            f"the last {result.torn_tail_bytes} bytes are an unfinished write; the broker cuts them off when it starts"
        )
    _say(
        f"{_verdict(result)}: {result.segments} segments, {result.entries:,} entries, "
        f"{result.records:,} records, {result.bytes:,} bytes"
    )
    return 0 if result.sound else 1


def _verdict(result: Verified) -> str:
    if not result.sound:
        return "DAMAGED"
    return f"sound, with {len(result.gaps)} gaps in the offsets" if result.gaps else "sound"


def _repair(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.folder
    if not folder.is_dir():
        raise WalError(f"there is no folder {folder}")
    target = arguments.target or folder.with_name(f"{folder.resolve().name}-repaired")
    report = repair(folder, target)
    whole = not report.bad_ranges and not report.missing_segments and not report.gaps
    if arguments.json:
        _json(report)
        return 0 if whole else 1
    for bad in report.bad_ranges:
        _say(f"lost  {bad.path} bytes {bad.start} to {bad.end}: {bad.what}")
    for number in report.missing_segments:
        _say(f"lost  segment {number}: its file is missing")
    for gap in report.gaps:
        _say(
            f"gap   topic {gap.topic_id} partition {gap.partition}: offsets {gap.first_missing} to {gap.next_found - 1}"
        )
    for name in report.recovered_topics:
        _say(f"note  the name of a topic was lost; its records are in {name}")
    copied = f"copied {report.entries:,} entries with {report.records:,} records to {target}"
    _say(f"{copied}; lost {report.lost_bytes:,} bytes")
    return 0 if whole else 1


ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], str]] = {
    "ls": (_ls, "list segments and partitions"),
    "cat": (_cat, "print entries, with --records their records"),
    "verify": (_verify, "check every byte"),
    "repair": (_repair, "copy what is good into a new folder, and say what is not"),
}
