"""The error tree: bad input, corrupt bytes, full disks. A failed assert is a bug; these are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class CordwoodError(Exception):
    """Any error of Cordwood; the text says what failed, where, and what to do."""


class CorruptError(CordwoodError):
    """Bytes that do not follow the format.

    `path` and `position` (bytes from the start of the file or buffer) give the place, if known;
    `remedy` says what to do.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        position: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.position = position
        self.remedy = remedy

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        at = f" at byte {self.position}" if self.position is not None else ""
        remedy = f". {self.remedy}" if self.remedy else ""
        return f"{where}{self.reason}{at}{remedy}"

    def located(self, *, path: str, base_position: int | None = None) -> CorruptError:
        """The same error with its file named and its position counted from the file's start.

        `base_position` is where in the file the bytes began that the error is about.
        """
        position = self.position
        if base_position is not None:
            position = base_position + (self.position or 0)
        return type(self)(self.reason, path=path, position=position, remedy=self.remedy)

    def with_remedy(self, remedy: str) -> CorruptError:
        """The same error with what to do."""
        return type(self)(self.reason, path=self.path, position=self.position, remedy=remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild_corrupt,
            (type(self), self.reason, self.path, self.position, self.remedy),
        )


def _rebuild_corrupt(
    kind: type[CorruptError],
    reason: str,
    path: str | None,
    position: int | None,
    remedy: str | None,
) -> CorruptError:
    return kind(reason, path=path, position=position, remedy=remedy)


class ImpossibleOffsetError(CorruptError):
    """A batch is whole, its CRC right, and its offsets are such as no append writes.

    The CRC does not cover the base offset. To cut the log there would lose whole records.
    """


class BatchTooLargeError(CorruptError):
    """A record batch that takes more memory, decompressed, than its reader may take for one."""


class OversizedRecordError(CorruptError):
    """A record of a compressed batch, larger than max.decompressed.message.bytes allows."""


class UnsupportedVersionError(CorruptError):
    """A version of a format that this release does not know."""


class MalformedValueError(CordwoodError):
    """A key or value of a record that its schema does not describe.

    `place` names the record, `column` is `key` or `value`.
    """

    def __init__(self, place: str, column: str, reason: str) -> None:
        super().__init__(
            f"{place}: the {column} cannot be decoded: {reason.rstrip('.')}. Option malformed=null "
            "makes it null"
        )
        self.place = place
        self.column = column
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.place, self.column, self.reason)


class DataLossError(CordwoodError):
    """Records that a stream was to read are gone.

    `partition` names the partition, `position` is the offset at which the stream was to continue,
    `found` says what is there instead, and `log_offset` is the log start offset or the log end
    offset, whichever the position is beyond; None if neither is it.
    """

    def __init__(
        self, partition: str, position: int, found: str, *, log_offset: int | None = None
    ) -> None:
        super().__init__(
            f"{partition}: the stream is at offset {position}, and {found}. Option "
            "failOnDataLoss=false has it continue at what is there, with a warning"
        )
        self.partition = partition
        self.position = position
        self.found = found
        self.log_offset = log_offset

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_data_loss, (self.partition, self.position, self.found, self.log_offset)


def _rebuild_data_loss(
    partition: str, position: int, found: str, log_offset: int | None
) -> DataLossError:
    return DataLossError(partition, position, found, log_offset=log_offset)


class TableError(CordwoodError):
    """A Delta table that cannot be read or written, or that is not one of the topic."""


class TableConflictError(TableError):
    """Another writer has changed a table since a run began; the run has written nothing."""


class TableSchemaError(TableError):
    """A column of a table has another type than its new rows would have.

    `field` is its path, `known` the type in the table, `wanted` that of new rows.
    """

    def __init__(self, field: str, *, known: str, wanted: str) -> None:
        super().__init__(
            f"column {field} of the table is {known}, and by the schema it would be {wanted}: a "
            "schema may add fields, and not change one. Make another table"
        )
        self.field = field
        self.known = known
        self.wanted = wanted


class TableGapError(TableError):
    """Records that a table of rows was to get are gone.

    `gaps` are the first offset and the one behind the last, by partition.
    """

    def __init__(self, gaps: Mapping[str, tuple[int, int]]) -> None:
        named = ", ".join(f"{name} {first} to {end - 1}" for name, (first, end) in gaps.items())
        super().__init__(
            f"offsets that the table does not have are not in the log any more: {named}. "
            "--allow-gaps continues behind them"
        )
        self.gaps = dict(gaps)


class EncodingError(CordwoodError):
    """A value that a file format cannot hold: it was not written."""


class ConfigError(CordwoodError):
    """A setting that is unknown, or whose value Kafka would refuse."""


class UnknownSettingError(ConfigError):
    """A setting that nothing asks for, where a misspelled one must not be ignored.

    `names` are all such settings.
    """

    def __init__(self, advice: Mapping[str, str], *, source: str) -> None:
        """Takes the advice on each setting by its name."""
        texts = "; ".join(f"{name}: {text}" for name, text in advice.items())
        super().__init__(f"{source}: unknown settings: {texts}")
        self.names = tuple(advice)


class UnsupportedSettingError(ConfigError):
    """A setting that requires an unsupported feature, and must not be ignored.

    `name` and `value` are the setting's, `source` is where it was found, `remedy` what to do.
    """

    def __init__(self, name: str, value: str, *, source: str, remedy: str) -> None:
        super().__init__(f"{source}: {name}={value} is not supported by Cordwood; {remedy}")
        self.name = name
        self.value = value
        self.source = source
        self.remedy = remedy


class NotALogDirError(CordwoodError):
    """A directory that is not an entry of a Kafka broker's log.dirs, nor a partition's."""


class DirectoryInUseError(CordwoodError):
    """Another process holds the directory's `.lock`."""


class NotARegularFileError(OSError):
    """A FIFO, a socket or a device where a file of a log belongs."""


class NoSpaceError(CordwoodError):
    """The file system has no space for the requested work."""


class TrashError(CordwoodError):
    """The directory of removed data cannot be read or written; what was to go there stays."""


class TrashMissingError(TrashError):
    """The directory of removed data is not there, or another one is in its place."""


class StagingError(CordwoodError):
    """A file that a compaction writes beside a log's segments failed; the log is as it was."""


class TopicWriteError(CordwoodError):
    """A topic that a DataFrame cannot be written to; nothing of it was."""


class EngineError(CordwoodError):
    """Spark could not be started, or cannot access the directories."""


class EngineUnavailableError(EngineError):
    """Spark is unavailable; the text says why, and the caller tries again later."""


class MissingExtraError(EngineUnavailableError):
    """An optional part of the installation is missing; `extra` is its name."""

    def __init__(
        self, extra: str, *, what: str, missing: Sequence[str], otherwise: str = ""
    ) -> None:
        are = "is" if len(missing) == 1 else "are"
        super().__init__(
            f"{what} needs the extra '{extra}': {', '.join(missing)} {are} not installed. "
            f"Install it: pip install 'cordwood[{extra}]'{otherwise and f'. {otherwise}'}"
        )
        self.extra = extra


class NotCompactedError(CordwoodError):
    """Partitions are due for compaction and were not compacted.

    `reasons` says why, by partition, such as `{"orders-0": "..."}`; `advice` says what to do.
    """

    def __init__(self, reasons: Mapping[str, str], *, advice: str = "") -> None:
        by_reason: dict[str, list[str]] = {}
        for partition, reason in sorted(reasons.items()):
            by_reason.setdefault(reason, []).append(partition)
        count = len(reasons)
        head = "1 partition is" if count == 1 else f"{count} partitions are"
        causes = "; ".join(
            f"{', '.join(names)}: {reason.rstrip('.')}" for reason, names in by_reason.items()
        )
        text = f"{head} due for compaction and could not be compacted: {causes}."
        super().__init__(f"{text} {advice}".rstrip())
        self.reasons = dict(reasons)
