"""A log as another process sees it, while the broker writes, rolls and drops segments. Takes no lock, writes nothing.

New entries are learnt from the index, whose rows appear after their entries, so half an entry is never seen.
"""

from pathlib import Path

import numpy as np

from wal.control import Checkpoint, SegmentRecord, SegmentSealed, decode_body
from wal.entry import HEADER_SIZE, Kind, unpack_header
from wal.errors import LogDamagedError, WalError
from wal.index import ROW_DTYPE, Rows, pack_row, read_rows
from wal.lookup import Lookup
from wal.segment import FILE_HEADER_SIZE, BadEntryError, SegmentFile, log_path, segment_numbers
from wal.segments import Segment, Segments, check_log_id, open_sealed
from wal.settings import WalSettings
from wal.state import LogState
from wal.view import LogView


class WalReader(LogView):
    """Follows a log. `refresh` learns what was written since; reads in between see the log as it was then."""

    def __init__(self, folder: Path | str, settings: WalSettings | None = None) -> None:
        self._folder = Path(folder)
        self._cache_bytes = (settings or WalSettings()).lookup_cache_bytes
        super().__init__(LogState(), Segments(self._cache_bytes))
        self._known = 0  # rows of the last segment that are taken in
        self._load()

    @property
    def folder(self) -> Path:
        return self._folder

    def refresh(self) -> bool:
        """Takes in what was written since; whether there was anything."""
        with self._turn:
            before = self.end
            while self._follow():
                if not self._next():
                    break
            return self.end != before

    def _load(self) -> None:
        """Starts from the newest segment, whose first entry is a checkpoint of all before it."""
        if not self._folder.is_dir():
            raise WalError(f"there is no folder {self._folder}", path=self._folder)
        numbers = segment_numbers(self._folder)
        if not numbers:
            raise WalError(f"there is no log in {self._folder}: give the folder with the .log files", path=self._folder)
        file = SegmentFile(log_path(self._folder, numbers[-1]))
        self.state, self.segments = LogState(), Segments(self._cache_bytes)
        self._restore(file)
        self._begin(file)
        self._follow()  # before the sealed ones: what follows the checkpoint may have dropped some of them
        for number in sorted(self.state.segments):
            self._open_sealed(number, file.header.log_id)
        if self.segments.last.sealed is not None:  # it was sealed while we read it
            self.refresh()

    def _open_sealed(self, number: int, log_id: bytes) -> None:
        if number in self.segments:
            return
        try:
            self.segments.add(open_sealed(self._folder, self.state.segments[number], log_id))
        except LogDamagedError:
            self._follow()
            if number in self.state.segments:  # not dropped in this very moment
                raise

    def _restore(self, file: SegmentFile) -> None:
        try:
            entry, body = next(file.scan(FILE_HEADER_SIZE, file.size()))
        except BadEntryError as error:
            raise LogDamagedError(
                f"{error}: run `rafka-lab wal repair {self._folder}`", path=file.path, position=error.position
            ) from None
        if entry.kind != Kind.CHECKPOINT:
            raise LogDamagedError(f"{file.path} does not open with a checkpoint", path=file.path, position=0)
        checkpoint = decode_body(Checkpoint, body)
        self.state.restore(checkpoint.topics, checkpoint.partitions, checkpoint.values, checkpoint.segments)

    def _begin(self, file: SegmentFile) -> None:
        self.segments.add(Segment(file, Lookup(), FILE_HEADER_SIZE))
        self._known = 0

    def _follow(self) -> bool:
        """Takes in the new rows of the last segment; whether it is sealed now."""
        segment = self.segments.last
        if segment.sealed is not None:
            return True
        rows = self._rows(segment)
        if len(rows) < self._known:  # the broker cut off a torn tail that we had seen
            self._load()
            return False
        new = rows[self._known :]
        self._known = len(rows)
        if len(new):
            self._take(segment, new)
        return segment.sealed is not None

    def _rows(self, segment: Segment) -> Rows:
        """The published rows. The first look goes by the log too: without a broker the index may be short or gone."""
        file = segment.file
        rows = read_rows(segment.index_path, file.header, file.size())
        if rows is not None and self._known:
            return rows
        rows = np.empty(0, ROW_DTYPE) if rows is None else rows
        start = int(rows[-1]["position"] + rows[-1]["length"]) if len(rows) else FILE_HEADER_SIZE
        packed: list[bytes] = []
        try:
            for entry, _ in file.scan(start, file.size()):
                packed.append(pack_row(entry))
        except BadEntryError:
            pass  # the end, for a reader: the broker is at work on it, or judges it when it opens the log
        return np.concatenate([rows, np.frombuffer(b"".join(packed), ROW_DTYPE)]) if packed else rows

    def _take(self, segment: Segment, rows: Rows) -> None:
        """Control entries first: data of a topic that was deleted behind it then finds no topic, as it should."""
        for row in rows[rows["kind"] != Kind.DATA]:
            self._take_control(segment, int(row["position"]), int(row["length"]))
        assert segment.lookup is not None
        segment.lookup.extend(rows)
        for key, part in segment.lookup.partitions.items():
            if key[0] in self.state.topics:
                state = self.state.partition(*key)
                state.next_offset = state.high_watermark = max(state.next_offset, part.next_offset)
        segment.end = int(rows[-1]["position"]) + int(rows[-1]["length"])

    def _take_control(self, segment: Segment, position: int, length: int) -> None:
        entry = segment.file.entry(position, length)
        header, body = unpack_header(entry), entry[HEADER_SIZE:]
        self.state.apply(header, body)
        if header.kind == Kind.SEGMENT_SEALED:
            self.state.segments[segment.number] = SegmentRecord(segment.number, header.end, position)
            segment.seal(decode_body(SegmentSealed, body), position)
        elif header.kind == Kind.SEGMENTS_DROPPED:
            for number in [known.number for known in self.segments if known.sealed is not None]:
                if number not in self.state.segments:
                    self.segments.drop(number)

    def _next(self) -> bool:
        """Goes on with the segment behind a sealed one; False if the broker has not made it yet."""
        number = self.segments.last.number + 1
        try:
            file = SegmentFile(log_path(self._folder, number))
        except FileNotFoundError:
            if segment_numbers(self._folder)[-1] > number:  # it came and went while we looked away
                self._load()
            return False
        check_log_id(file, self.segments.last.file.header.log_id)
        self._begin(file)
        return True
