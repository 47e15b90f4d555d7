"""The limits of the memory of Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.cleanup.engine.survivors import ENTRY_BYTES
from cordwood.cleanup.plan.compaction_values import BATCH_BYTES_MIN

#: Keys a task holds before it spills; a table of so many takes 64 MiB.
ENTRIES_MAX = 1_015_808
#: Logs of up to so many bytes are never split.
_WHOLE_BYTES = 64 << 20
# A process with its libraries and buffers; what a key takes in a half-full table and in blocks.
_PROCESS_BYTES = 220 << 20
_BYTES_A_KEY = 120
_ENTRIES_FLOOR, _ENTRIES_CEILING = 1 << 17, 1 << 22
_SLACK_ENTRIES = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """The limits of one task.

    `entries_max` is how many keys a task holds; `whole_bytes` the size up to which a log is done by
    one task even where others are idle. No batch may take more than `batch_bytes_max`, or if that
    is None, than what its topic's max.message.bytes lets a client send.
    """

    entries_max: int = ENTRIES_MAX
    whole_bytes: int = _WHOLE_BYTES
    batch_bytes_max: int | None = None

    @classmethod
    def within(cls, memory_bytes: int, slots: int) -> TaskLimits:
        """Limits for which the driver and `slots` workers together stay within `memory_bytes`."""
        each = memory_bytes // (slots + 1) - _PROCESS_BYTES
        wanted = max(_ENTRIES_FLOOR, min(_ENTRIES_CEILING, each // _BYTES_A_KEY))
        # A table doubles when it is half full: fill it just short of that.
        doublings = (wanted + _SLACK_ENTRIES).bit_length() - 1
        # Beside the table a batch is read; without it, a batch is rewritten, from one buffer to
        # another.
        table_bytes = ENTRY_BYTES << (doublings + 1)
        batch_bytes_max = max(BATCH_BYTES_MIN, min(each - table_bytes, each // 2))
        return cls(entries_max=(1 << doublings) - _SLACK_ENTRIES, batch_bytes_max=batch_bytes_max)

    @classmethod
    def of_tables(cls, table_bytes: int) -> TaskLimits:
        """Limits for which the table of keys of a task takes at most `table_bytes`.

        It is filled to a half at most, less what a batch may bring, and at least 4,096 keys.
        """
        slots = 1 << max(13, (table_bytes // ENTRY_BYTES).bit_length() - 1)
        return cls(entries_max=slots // 2 - min(_SLACK_ENTRIES, slots // 16))
