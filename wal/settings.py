"""Every limit of the log, with its reason."""

import msgspec

from wal.errors import WalError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# No entry is larger. Kafka's frame limit is 100 MiB, so a larger length in a header means damage, and a reader
# must not allocate what a damaged length asks for.
MAX_ENTRY_BYTES = 128 * MIB
# Positions inside a segment take 32 bits in the in-memory lookup; the last entry may start just below the limit.
MAX_SEGMENT_BYTES = 4 * GIB - 2 * MAX_ENTRY_BYTES
# A segment must have room for its header and a checkpoint; tests use small ones.
MIN_SEGMENT_BYTES = 4 * KIB


class WalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one log behaves; the defaults suit a broker on a laptop as well as a long-running one."""

    # Large enough that rolling (one sync, two new files) is rare; small enough that retention frees space in steps.
    segment_bytes: int = GIB
    # A crash makes recovery read about this much: some 50 ms from the page cache, well under a second from a disk.
    checkpoint_bytes: int = 64 * MIB
    # Appends that wait for a sync may pile up to this many bytes; then the caller has to wait (back-pressure).
    max_unsynced_bytes: int = 64 * MIB
    # Appends of durability `none` gather up to this size or this long before they are written in one go.
    buffer_bytes: int = 256 * KIB
    buffer_seconds: float = 0.05
    # After a clean stop this much of the log's end is read and checked at the next open. It is a constant, so opening
    # does not get slower as the log grows, and it finds damage in a small log before anything is served.
    verify_tail_bytes: int = 16 * MIB
    # Lookups of sealed segments are built when first read and forgotten, oldest use first, above this many bytes.
    lookup_cache_bytes: int = 256 * MIB
    # A producer that wrote nothing for this long is forgotten (Kafka's producer.id.expiration.ms).
    producer_expiry_ms: int = 24 * 3600 * 1000
    # What a partition keeps when its topic says nothing: Kafka's own defaults (7 days, any size).
    default_retention_ms: int = 7 * 24 * 3600 * 1000
    default_retention_bytes: int = -1

    def __post_init__(self) -> None:
        if not MIN_SEGMENT_BYTES <= self.segment_bytes <= MAX_SEGMENT_BYTES:
            raise WalError(
                f"segment_bytes is {self.segment_bytes}: choose a size from {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"
            )
