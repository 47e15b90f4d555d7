"""Criteria of erasures, and their form in ledgers, which does not hold what is erased.

A report has the keys as SHA-256 of a salt, which is in the report, and the key: who knows a key can
check that it was erased. A ledger has them as hashes keyed with its own salt, and the offsets up to
which they were erased, so that the erasure can be applied again to a copy of the log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from cordwood.cleanup.engine.search.condition import Condition, parse_condition, quoted
from cordwood.cleanup.erasure.report import DescribedCriteria, HashedKeys
from cordwood.format.record import Record
from cordwood.model.errors import ConfigError, CorruptError
from cordwood.model.topic_names import CLUSTER_METADATA_TOPIC
from cordwood.model.topic_partition import TopicPartition

SALT_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The topics that a name or a glob matches, or one partition of each."""

    topic: str
    partition: int | None = None

    @property
    def is_glob(self) -> bool:
        """Whether it may match several topics: the names of Kafka's topics have no such letter."""
        return any(letter in self.topic for letter in "*?[")

    def covers(self, partition: TopicPartition) -> bool:
        """Whether a partition is part of it; a glob never matches the cluster metadata log."""
        if self.partition not in {None, partition.partition}:
            return False
        if not self.is_glob:
            return self.topic == partition.topic
        is_metadata = partition.topic == CLUSTER_METADATA_TOPIC
        return not is_metadata and fnmatchcase(partition.topic, self.topic)

    def __str__(self) -> str:
        return self.topic if self.partition is None else f"{self.topic}:{self.partition}"


def _require_allowed(where: str | None) -> None:
    if where is not None:
        parse_condition(where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The criteria of one erasure: keys, or an SQL expression.

    With `where` None, `keys` has at least one; if both are empty it is applied from a ledger.

    Raises:
        ConfigError: `where` is no expression that is allowed.
    """

    keys: frozenset[bytes] = frozenset()
    where: str | None = None

    def __post_init__(self) -> None:
        _require_allowed(self.where)

    def described(self, salt: bytes) -> DescribedCriteria:
        """The criteria for a report, in which no key can be read."""
        if self.where is not None:
            return DescribedCriteria(where=self.where)
        hashes = tuple(sorted(hash_of_key(key, salt) for key in self.keys))
        return DescribedCriteria(
            keys=HashedKeys(algorithm="SHA-256(salt + key)", salt=salt.hex(), hashes=hashes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """One erasure of a ledger, which can be applied again.

    `digests` are the keyed hashes of its keys, none where it has `where`. `until` has the end of
    each partition at the time, exclusive; in a partition that is not in it, records with a
    timestamp up to `time_ms` match. `erased` is how many records of each partition were found.

    Raises:
        ConfigError: `where` is no expression that is allowed.
    """

    id: str
    time_ms: int
    targets: tuple[Target, ...]
    until: Mapping[str, int]
    digests: frozenset[str] = frozenset()
    where: str | None = None
    erased: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_allowed(self.where)

    def covers(self, partition: TopicPartition, record: Record) -> bool:
        """Whether a record lies in a partition of the erasure and was there at its time."""
        if not any(target.covers(partition) for target in self.targets):
            return False
        end = self.until.get(str(partition))
        return record.timestamp <= self.time_ms if end is None else record.offset < end

    def condition(self) -> Condition:
        """`where`, limited to records that `covers` covers."""
        assert self.where is not None, "an erasure by keys has no expression"
        mine = parse_condition(self.where)
        choices = []
        for target in self.targets:
            chosen = f"topic = {quoted(target.topic)}"
            if target.partition is not None:
                chosen += f" AND partition = {target.partition}"
            choices.append(f"({chosen})")
        cases = "".join(
            f" WHEN concat(topic, '-', partition) = {quoted(name)} THEN offset < {end}"
            for name, end in sorted(self.until.items())
        )
        since = f"timestamp_ms <= {self.time_ms}"
        limit = f"CASE{cases} ELSE {since} END" if cases else since
        sql = f"({' OR '.join(choices)}) AND ({limit}) AND ({mine.sql})"
        return Condition(text=mine.text, sql=sql)

    def to_json(self) -> dict[str, Any]:
        """A line of a ledger."""
        value: dict[str, Any] = {
            "id": self.id,
            "time_ms": self.time_ms,
            "topics": [str(target) for target in self.targets],
            "until": dict(self.until),
            "erased": dict(self.erased),
        }
        if self.where is not None:
            return value | {"where": self.where}
        return value | {"keys": sorted(self.digests)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Suppression:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: it is none.
            ConfigError: its expression is not allowed.
        """
        where = value.get("where")
        return cls(
            id=str(value["id"]),
            time_ms=int(value["time_ms"]),
            targets=tuple(parse_target(each) for each in value["topics"]),
            until={str(name): int(end) for name, end in value["until"].items()},
            digests=frozenset(str(each) for each in value.get("keys", ())),
            where=None if where is None else str(where),
            erased={str(name): int(n) for name, n in value.get("erased", {}).items()},
        )


def narrowed(
    targets: Sequence[Target],
    *,
    without: Collection[TopicPartition],
    known: Collection[TopicPartition],
) -> tuple[Target, ...]:
    """Restricts targets of an erasure so that they leave out some partitions.

    Args:
        targets: with or without a glob; one without, which covers none of `without`, stays as it
            is, and one with becomes a target for each topic.
        without: the partitions to leave out.
        known: the partitions that replace a topic some of whose partitions are left out.
    """
    found: list[Target] = []
    for target in targets:
        mine = [each for each in sorted(known) if target.covers(each)]
        names = dict.fromkeys(each.topic for each in mine) if target.is_glob else [target.topic]
        for name in names:
            named = Target(topic=name, partition=target.partition)
            if not any(named.covers(partition) for partition in without):
                found.append(named)
                continue
            rest = [each for each in mine if named.covers(each) and each not in without]
            found += [Target(topic=each.topic, partition=each.partition) for each in rest]
    return tuple(dict.fromkeys(found))


def parse_target(text: str) -> Target:
    """A target from TOPIC or TOPIC:PARTITION; the topic may be a glob.

    Raises:
        ValueError: the partition is no number.
    """
    topic, separator, partition = text.partition(":")
    if separator and not (partition.isascii() and partition.isdigit()):
        raise ValueError(f"{text!r} is neither TOPIC nor TOPIC:PARTITION")
    return Target(topic=topic, partition=int(partition) if separator else None)


def hash_of_key(key: bytes, salt: bytes) -> str:
    """The hash of a key in a report: SHA-256 of the report's salt and the key."""
    return hashlib.sha256(salt + key).hexdigest()


def digest_of(key: bytes, salt: bytes) -> str:
    """The hash of a key in a ledger: BLAKE2b of 32 bytes, keyed with the ledger's salt."""
    return hashlib.blake2b(key, key=salt, digest_size=32).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressions:
    """The erasures of one ledger; `salt` is its secret."""

    salt: bytes
    entries: tuple[Suppression, ...] = field(default=())

    def matcher(self) -> SuppressedKeys | None:
        """Matches the records whose keys were erased; None if none was by keys."""
        by_digest: dict[str, list[Suppression]] = {}
        for entry in self.entries:
            for digest in entry.digests:
                by_digest.setdefault(digest, []).append(entry)
        return SuppressedKeys(salt=self.salt, by_digest=by_digest) if by_digest else None

    def conditions(self) -> list[Condition]:
        """The expressions of the erasures that have one."""
        return [entry.condition() for entry in self.entries if entry.where is not None]


def targets_of(ledgers: Sequence[Suppressions]) -> tuple[Target, ...]:
    """The topics and partitions of all erasures of some ledgers, each once."""
    entries = [entry for ledger in ledgers for entry in ledger.entries]
    return tuple(dict.fromkeys(target for entry in entries for target in entry.targets))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppressedKeys:
    """Whether a record's key is in a ledger; a function that can be pickled."""

    salt: bytes
    by_digest: Mapping[str, Sequence[Suppression]]

    def __call__(self, partition: TopicPartition, record: Record) -> bool:
        """Whether the record was erased."""
        if record.key is None:
            return False
        entries = self.by_digest.get(digest_of(record.key, self.salt), ())
        return any(entry.covers(partition, record) for entry in entries)


def parse_ledger(data: bytes, *, path: str) -> Suppressions:
    """The erasures of a ledger: a line with its salt, then one for each erasure.

    A last line without an end was cut off by a crash: that erasure had changed nothing yet.

    Raises:
        CorruptError: a line is not what a ledger has; names the file and the line.
    """
    lines = data.split(b"\n")[:-1]
    number = 1
    try:
        head = json.loads(lines[0])
        if head["cordwood_erasures"] != 1:
            raise ValueError(f"version {head['cordwood_erasures']}")
        salt = bytes.fromhex(head["salt"])
        entries: dict[str, Suppression] = {}
        for number, line in enumerate(lines[1:], 2):  # noqa: B007  # for the error
            entry = Suppression.from_json(json.loads(line))
            entries[entry.id] = entry
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ConfigError) as error:
        raise CorruptError(
            f"line {number} is not of a ledger of erasures ({error})", path=path
        ) from error
    return Suppressions(salt=salt, entries=tuple(entries.values()))


def build_ledger_head(salt: bytes) -> bytes:
    """The first line of a ledger."""
    return json.dumps({"cordwood_erasures": 1, "salt": salt.hex()}).encode() + b"\n"


def build_ledger_line(entry: Suppression) -> bytes:
    """A line of a ledger."""
    return json.dumps(entry.to_json(), sort_keys=True).encode() + b"\n"
