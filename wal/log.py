"""SingleWal: one log for all topics of a broker. Appends, control entries, reads, retention; opens and closes.

Any thread may call. Appends take turns; a sync happens outside of their lock, so appends go on while it runs.
"""

import os
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from wal.batch import BatchHeader, stored_prefix
from wal.control import (
    Body,
    SegmentRecord,
    SegmentsDropped,
    SegmentSealed,
    TopicRecord,
    ValuesChanged,
)
from wal.disk import Disk
from wal.entry import NO_TRACE, EntryHeader, Kind
from wal.errors import (
    BatchTooLargeError,
    DiskFullError,
    LogClosedError,
    LogPoisonedError,
    OffsetOutOfRangeError,
    TopicExistsError,
    WalError,
)
from wal.folder import lock_for_writing, make_folder, unwritable
from wal.recovery import RecoveryReport, make_checkpoint, recover, remove_segment
from wal.retention import dead_segments, expired_log_starts
from wal.segment import FileHeader
from wal.settings import MAX_ENTRY_BYTES, WalSettings
from wal.state import Key
from wal.syncer import Callback, Syncer
from wal.view import LogView
from wal.writer import Buffer, Built, create_segment, now_ms

LEADER_EPOCH = 0  # one broker holds a partition for its whole life


class Durability(IntEnum):
    """What an append promises when it returns (`SYNCED`: when its sync is reported)."""

    NONE = 0  # nothing: it may wait in memory for a moment
    WRITTEN = 1  # survives the end of the process, also kill -9
    SYNCED = 2  # survives the loss of power


class NewBatch(NamedTuple):
    """A batch to append. `header` is what `check_batch` gave for `batch`."""

    topic_id: bytes
    partition: int
    batch: Buffer
    header: BatchHeader
    trace_id: bytes = NO_TRACE


class Appended(NamedTuple):
    """Where a batch went. A `duplicate` was stored before, at this very offset."""

    base_offset: int = -1
    log_start: int = -1
    duplicate: bool = False
    error: WalError | None = None


class SingleWal(LogView):
    """An open log. Use `SingleWal.open`; close it, or use it as a context manager."""

    def __init__(self, folder: Path, settings: WalSettings, disk: Disk, lock: int) -> None:
        self._folder = folder
        self._settings = settings
        self._disk = disk
        self._lock_fd = lock
        recovered = recover(folder, settings, disk)
        super().__init__(recovered.state, recovered.segments)
        self.report: RecoveryReport = recovered.report
        self._active = recovered.active
        self._buffered: list[Built] = []
        self._buffered_bytes = 0
        self._closed = False
        self._sequence = 0  # bytes written since the log was opened
        if not recovered.created:
            self._active.write([self._build_checkpoint(clean=False)])
            # It names the boot that wrote what follows. All that follows says that this is on the disk, so that its
            # damage is never taken for a power loss in the boot before.
            self._active.sync()
        self._syncer = Syncer(self._sync_now, self._flush_if_room, settings.buffer_seconds)

    @classmethod
    def open(cls, folder: Path | str, settings: WalSettings | None = None, disk: Disk | None = None) -> "SingleWal":
        """Opens the log in `folder` for writing, or makes one there. One process at a time can."""
        folder = Path(folder)
        disk = disk or Disk()
        try:
            make_folder(folder, disk)
            lock = lock_for_writing(folder)
        except OSError as error:
            raise unwritable(folder, error) from error
        try:
            return cls(folder, settings or WalSettings(), disk, lock)
        except OSError as error:
            os.close(lock)
            raise unwritable(folder, error) from error
        except BaseException:
            os.close(lock)
            raise

    def __enter__(self) -> "SingleWal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def settings(self) -> WalSettings:
        return self._settings

    @property
    def failure(self) -> WalError | None:
        """Why the log takes no more appends, once that is so."""
        return self._syncer.failure

    @property
    def sequence(self) -> int:
        """Counts all bytes written so far; what `when_synced` and `wait_synced` take."""
        return self._sequence

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that somebody waits for and that are not on the disk."""
        return max(0, self._syncer.wanted - self._syncer.durable)

    @property
    def has_room(self) -> bool:
        """False while so much waits for a sync that the next append would block."""
        return self.unsynced_bytes < self._settings.max_unsynced_bytes

    # Appending

    def append(self, batches: Sequence[NewBatch], durability: Durability = Durability.WRITTEN) -> list[Appended]:
        """Stores batches of known topics and gives each its offsets.

        What is wrong with one batch (its sequence, its size) is that result's `error`. What is wrong with the log
        raises, and then nothing of this call is stored (but for batches that another one of the same partition
        follows in this call). With `SYNCED`, pass `sequence` to `when_synced` or `wait_synced` afterwards: only
        then is the promise kept.
        """
        if durability is Durability.SYNCED and not self.has_room:
            self._syncer.wait(self._syncer.wanted - self._settings.max_unsynced_bytes // 2)
        with self._turn:
            self._check_open()
            try:
                results = self._append(batches, durability)
            except BaseException:
                self._active.end = self._active.segment.end + self._buffered_bytes  # what was only built has no place
                raise
            if durability is not Durability.NONE and self._buffered:
                self._write([])  # a repeat of a buffered batch is promised more than the batch was
            if durability is Durability.SYNCED:
                self._syncer.request(self._sequence)
            return results

    def _append(self, batches: Sequence[NewBatch], durability: Durability) -> list[Appended]:
        results: list[Appended] = []
        built: list[Built] = []
        partitions: set[Key] = set()
        for batch in batches:
            if (batch.topic_id, batch.partition) in partitions:
                self._take(built, durability)  # its offsets and sequence follow from the one before it
                built = []
                partitions.clear()
            partitions.add((batch.topic_id, batch.partition))
            results.append(self._place(batch, built))
        self._take(built, durability)
        return results

    def _place(self, new: NewBatch, built: list[Built]) -> Appended:
        """Builds the entry of a batch, unless it must not be stored or is stored already."""
        state = self.state.partition(new.topic_id, new.partition)
        header = new.header
        try:
            if len(new.batch) > MAX_ENTRY_BYTES // 2:
                raise BatchTooLargeError(f"a batch of {len(new.batch)} bytes: the log takes {MAX_ENTRY_BYTES // 2}")
            known = state.producers.get(header.producer_id) if header.producer_id >= 0 else None
            stored_at = None if known is None else known.check(header)
        except WalError as error:
            return Appended(log_start=state.log_start, error=error)
        if stored_at is not None:
            return Appended(stored_at, state.log_start, duplicate=True)
        self._make_room(len(new.batch), built)
        offset = state.next_offset
        prefix, rest = stored_prefix(new.batch, offset, LEADER_EPOCH)
        entry = EntryHeader(
            0,
            0,
            0,
            Kind.DATA,
            0,
            header.attributes & 0xFFFF,
            new.partition,
            self.state.topics[new.topic_id].org_id,
            new.topic_id,
            offset,
            header.record_count,
            LEADER_EPOCH,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            0,
            header.base_sequence,
            new.trace_id,
            now_ms(),
        )
        built.append(self._active.build(entry, prefix, rest))
        return Appended(offset, state.log_start)

    def _take(self, built: list[Built], durability: Durability) -> None:
        """Writes entries, or keeps those of `NONE` for the next write; then they count."""
        if not built:
            return
        if durability is Durability.NONE and self._buffered_bytes < self._settings.buffer_bytes:
            self._buffered += [Built(entry.header, tuple(map(bytes, entry.buffers))) for entry in built]
            self._buffered_bytes += sum(entry.header.length for entry in built)
            self._syncer.tick_soon()
        else:
            self._write(built)
        for entry in built:
            self._count(entry.header)

    def _count(self, entry: EntryHeader) -> None:
        state = self.state.partition(entry.topic_id, entry.partition)
        state.next_offset = entry.next_offset
        if entry.producer_id >= 0:
            self.state.add_producer(state, entry)
        if not self._buffered:
            state.high_watermark = state.next_offset

    def _write(self, built: Sequence[Built]) -> None:
        """Writes what is buffered and then `built`; on an error the buffered stay buffered."""
        buffered = self._buffered
        before = self._active.segment.end
        try:
            self._active.write([*buffered, *built])
        except LogPoisonedError as error:
            self._syncer.fail(error)
            raise
        except WalError:
            self._active.end = before + self._buffered_bytes
            raise
        self._sequence += self._active.segment.end - before
        self._buffered, self._buffered_bytes = [], 0
        for entry in buffered:
            state = self.state.partitions.get((entry.header.topic_id, entry.header.partition))
            if state is not None:
                state.high_watermark = state.next_offset

    def flush(self) -> None:
        """Writes what `NONE` appends left in memory."""
        with self._turn:
            self._check_open()
            if self._buffered:
                self._write([])

    def _flush_if_room(self) -> None:
        """Called by the sync thread: without room the buffered entries stay, and the next append says why."""
        with self._turn:
            if self._buffered and not self._closed and self._syncer.failure is None:
                try:
                    self._write([])
                except DiskFullError:
                    self._syncer.tick_soon()

    # Segments and checkpoints

    def _make_room(self, size: int, built: list[Built]) -> None:
        """Rolls the segment or writes a checkpoint first, where the next entry would go over the limit."""
        if built:
            return  # the entries of one call stay together
        active = self._active
        # More than its first checkpoint: one that is larger than a segment should be must not roll for ever.
        too_large = active.end + size > self._settings.segment_bytes and active.index.count > 1
        if active.segment.sealed is not None or too_large:
            self._roll()
        elif active.end - active.checkpoint_end > self._settings.checkpoint_bytes:
            self.flush()
            self._write([self._build_checkpoint(clean=False)])
            self._syncer.request(self._sequence)  # bounds what a power loss makes recovery read

    def _build_checkpoint(self, *, clean: bool) -> Built:
        assert not self._buffered
        self.state.expire_producers(now_ms() - self._settings.producer_expiry_ms)
        built = self._active.build_control(
            Kind.CHECKPOINT, make_checkpoint(self.state, self._active.index, clean=clean)
        )
        self._active.checkpoint_end = self._active.end
        return built

    def _roll(self) -> None:
        """Seals the active segment and opens the next one; all before it is then on the disk."""
        self.flush()
        old = self._active
        if old.segment.sealed is None:  # else the disk was full when the next one was to be made
            self._seal()
        self._sync_active()
        header = FileHeader(old.segment.number + 1, old.file.header.log_id, now_ms())
        checkpoint = make_checkpoint(self.state, None, clean=False)
        try:
            active = create_segment(self._disk, self._folder, header, checkpoint)
        except LogPoisonedError as error:
            self._syncer.fail(error)
            raise
        old.close()
        self._active = active
        self.segments.add(active.segment)
        self._syncer.mark_durable(self._sequence)

    def _seal(self) -> None:
        segment = self._active.segment
        assert segment.lookup is not None
        sealed = SegmentSealed(
            entries=self._active.index.count,
            index_crc=self._active.index.crc,
            partitions=list(segment.lookup.summaries().values()),
        )
        at = segment.end
        self._write([self._active.build_control(Kind.SEGMENT_SEALED, sealed)])
        self.state.segments[segment.number] = SegmentRecord(segment.number, segment.end, at)
        segment.seal(sealed, at)

    def _sync_active(self) -> None:
        try:
            self._active.sync()
        except LogPoisonedError as error:
            self._syncer.fail(error)
            raise

    # Durability

    def _sync_now(self) -> int:
        """Called by the sync thread; returns what is durable now."""
        with self._turn:
            self._flush_if_room()
            active, sequence = self._active, self._sequence
        active.sync()
        return sequence

    def when_synced(self, sequence: int, callback: Callback) -> None:
        """Calls back, from the sync thread or at once, when all up to `sequence` is on the disk, or with an error."""
        self._syncer.request(sequence, callback)

    def wait_synced(self, sequence: int | None = None, timeout: float | None = None) -> bool:
        """Blocks until all up to `sequence` (or all so far) is on the disk; False if that took too long."""
        if sequence is None:
            self.flush()
            sequence = self._sequence
        return self._syncer.wait(sequence, timeout)

    # Control entries: each is written when its call returns; wait for the sync before promising anything.

    def create_topic(self, record: TopicRecord) -> None:
        with self._turn:
            if record.topic_id.bytes in self.state.topics or self.state.by_name(record.org_id, record.name):
                raise TopicExistsError(f"topic {record.name} is there already in organisation {record.org_id}")
            self._control(Kind.TOPIC_CREATED, record, org_id=record.org_id, topic_id=record.topic_id.bytes)

    def change_topic(self, record: TopicRecord) -> None:
        """New configs or more partitions. A topic keeps its id and its partitions."""
        with self._turn:
            known = self.state.topic(record.topic_id.bytes)
            if len(record.leaders) < len(known.leaders):
                raise WalError(f"topic {known.name} has {len(known.leaders)} partitions, and they cannot become fewer")
            self._control(Kind.TOPIC_CHANGED, record, org_id=record.org_id, topic_id=record.topic_id.bytes)

    def delete_topic(self, topic_id: bytes) -> None:
        with self._turn:
            record = self.state.topic(topic_id)
            self._control(Kind.TOPIC_DELETED, None, org_id=record.org_id, topic_id=topic_id)

    def move_log_start(self, topic_id: bytes, partition: int, offset: int) -> None:
        """Forgets the records before `offset`."""
        with self._turn:
            state = self.state.partition(topic_id, partition)
            if not state.log_start <= offset <= state.high_watermark:
                raise OffsetOutOfRangeError(
                    f"the log start of {self.state.topic(topic_id).name}-{partition} can move to "
                    f"{state.log_start}..{state.high_watermark}, not to {offset}"
                )
            if offset > state.log_start:
                org_id = self.state.topic(topic_id).org_id
                self._control(
                    Kind.LOG_START_MOVED,
                    None,
                    org_id=org_id,
                    topic_id=topic_id,
                    partition=partition,
                    base_offset=offset,
                )

    def set_values(self, values: dict[str, str | None]) -> None:
        """Keeps small facts of the broker; None removes one."""
        with self._turn:
            self._control(Kind.VALUES_CHANGED, ValuesChanged(values=values))

    def copy_entry(self, entry: EntryHeader, body: Buffer) -> None:
        """Stores an entry of another log with its own offsets; for repair, which must keep them."""
        with self._turn:
            self._check_open()
            self._make_room(len(body), [])
            built = self._active.build(entry, body)
            self._write([built])
            self.state.apply(built.header, memoryview(body))

    def _control(self, kind: Kind, body: Body | None, **fields: int | bytes) -> None:
        self._check_open()
        self._make_room(0, [])
        built = self._active.build_control(kind, body, **fields)
        self._write([built])
        self.state.apply(built.header, b"".join(built.buffers[1:]))

    # Retention

    def retain(self, now: int | None = None) -> int:
        """Moves log starts as the topics' retention asks and removes segments with nothing live; bytes freed."""
        with self._turn:
            self.flush()
            for (topic_id, partition), offset in expired_log_starts(
                self.state, self.segments, self._settings, now_ms() if now is None else now
            ):
                self.move_log_start(topic_id, partition, offset)
            return self._drop(dead_segments(self.state, self.segments))

    def _drop(self, numbers: Iterable[int]) -> int:
        numbers = list(numbers)
        if not numbers:
            return 0
        freed = sum(self.state.segments[number].size for number in numbers)
        self._control(Kind.SEGMENTS_DROPPED, SegmentsDropped(segments=numbers))
        self._sync_active()  # before the files go: a log that still names them would not open
        for number in numbers:
            self.segments.drop(number)
            remove_segment(self._disk, self._folder, number)
        return freed

    # The end

    def close(self) -> None:
        """Writes a checkpoint that says clean, syncs and lets go of the folder. A poisoned log just lets go."""
        try:
            with self._turn:
                self._let_go()
        finally:
            self._syncer.close()  # not under the lock: its thread may be waiting for it

    def _let_go(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._syncer.failure is None:
                self._end_clean()
        finally:
            self._active.close()
            os.close(self._lock_fd)

    def _end_clean(self) -> None:
        if self._buffered:
            self._write([])
        self._sync_active()  # first, so that the checkpoint can say that all before it is on the disk
        if self._active.segment.sealed is None:
            self._write([self._build_checkpoint(clean=True)])
            self._sync_active()
        self._syncer.mark_durable(self._sequence)

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the log in {self._folder} is closed")
        if self._syncer.failure is not None:
            raise self._syncer.failure
