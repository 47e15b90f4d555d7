"""A legal hold: nothing of a topic, or of one partition, is removed until it is released."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cordwood.model.errors import ConfigError
from cordwood.model.topic_partition import TopicPartition

_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"[0-9]{1,9}", re.ASCII)
#: Of a reason or of who added it: an HTTP request for it has to fit its bounds.
TEXT_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One hold; `partition` is None if it is on the whole topic.

    `by` says who added it, `created_ms` when, in ms since the epoch.
    """

    id: str
    topic: str
    partition: int | None
    reason: str
    by: str
    created_ms: int

    def __post_init__(self) -> None:
        """Raises ConfigError where a value is none that a hold may have."""
        if not _ID.fullmatch(self.id):
            raise ConfigError(
                f"--id {self.id[:100]!r}: expected 1 to 100 letters, digits, '.', '_' or '-'"
            )
        if not _TOPIC.fullmatch(self.topic):
            raise ConfigError(f"--topic {self.topic[:250]!r}: no topic can have that name")
        require_line("--reason", self.reason)
        require_line("--by", self.by)

    @property
    def target(self) -> str:
        """The topic or partition, as TOPIC or TOPIC:PARTITION."""
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"

    def covers(self, partition: TopicPartition) -> bool:
        """Whether it is on that partition."""
        return self.topic == partition.topic and self.partition in {None, partition.partition}


def require_line(option: str, text: str) -> None:
    """Checks a reason or a name.

    Raises:
        ConfigError: it is longer than a line may be, or not printable.
    """
    if len(text) > TEXT_CHARACTERS_MAX or not text.isprintable():
        raise ConfigError(
            f"{option}: expected one line of at most {TEXT_CHARACTERS_MAX} characters"
        )


def parse_target(text: str) -> tuple[str, int | None]:
    """(topic, partition or None) of TOPIC or TOPIC:PARTITION.

    Raises:
        ConfigError: it is neither.
    """
    topic, colon, number = text.partition(":")
    if not _TOPIC.fullmatch(topic) or (colon and not _PARTITION.fullmatch(number)):
        raise ConfigError(
            f"--topic {text[:260]!r}: expected a topic, or a partition such as orders:3"
        )
    return topic, int(number) if colon else None


def held_by(ids: Iterable[str]) -> str:
    """The reason that is reported for data under these holds."""
    return f"held: {', '.join(ids)}"
