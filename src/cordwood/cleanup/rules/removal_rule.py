"""The interface of a rule by which records go whatever their keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from cordwood.configs.log_config import LogConfig
from cordwood.format.record import Record


@dataclass(frozen=True, slots=True)
class RemovalRule(ABC):
    """A rule that is set by the key of a header, which says of a record from when on it goes.

    A compaction removes a record whose moment has come, and older ones of its key do not come back.
    One that has beaten a newer record, by its version, stays until a compaction in which there is
    no such record.

    `setting` is the topic's, `name` the field of a plan that has the header, and `kind` the number
    that `kernels.record_longs` reads of each record.
    """

    header: str

    setting: ClassVar[str]
    name: ClassVar[str]
    kind: ClassVar[int]
    #: Why a log is due, if it is for this rule.
    why_due: ClassVar[str]

    @classmethod
    def of(cls, config: LogConfig) -> Self | None:
        """The rule of a topic; None where it is off."""
        header: str = getattr(config, cls.setting.replace(".", "_"))
        return cls(header) if header else None

    @abstractmethod
    def goes_ms(self, record: Record) -> int | None:
        """The moment (ms) from which on a record may go; None if the rule does not concern it."""

    def moments(self, numbers: Any) -> Any:
        """The same for the numbers of several records, int64; those are moments already."""
        return numbers

    @abstractmethod
    def text(self, goes_ms: int, now_ms: int) -> str:
        """The reason of a record that goes from `goes_ms` on, as the beginning of a sentence."""

    @classmethod
    def remarks(cls, config: LogConfig) -> Iterator[tuple[str, str]]:
        """Remarks on the settings of a compacted topic: a stable code, and a text."""
        del config
        yield from ()
