"""One number of each record of a block: its version, or when a rule removes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cordwood.cleanup.rules.moments import NEVER
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.removal_rule import RemovalRule
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.format.native import kernels, records
from cordwood.format.native import record_longs as kinds
from cordwood.storage.reading.block import Ints, Payload


class RecordLongs:
    """Reads the numbers of the records of blocks.

    `values` and `known` are those of the last payload's block, in the order of its records; they
    mean nothing for records of batches that were left out.
    """

    def __init__(self, kind: int, header: str) -> None:
        """Takes the kind of `kernels.record_longs`, and the key of the header."""
        self._kind = kind
        self._key = np.frombuffer(bytearray(header.encode()), dtype=np.uint8)
        self.values = np.zeros(0, dtype=np.int64)
        self.known = np.zeros(0, dtype=np.bool_)

    @classmethod
    def of_versions(cls, rule: VersionRule) -> RecordLongs:
        """Reads versions."""
        if rule.header is None:
            return cls(kinds.TIMESTAMP, "")
        return cls(kinds.HEADER, rule.header)

    def read(self, payload: Payload) -> None:
        """Reads the numbers of a payload's records.

        Raises:
            CorruptError: a record is malformed.
        """
        total = payload.block.records_count
        if len(self.values) < total:
            self.values = np.zeros(total, dtype=np.int64)
            self.known = np.zeros(total, dtype=np.bool_)
        status, row = kernels.record_longs(
            *payload.where,
            payload.block.ordinals(),
            self._kind,
            self._key,
            self.values,
            self.known,
        )
        if status != records.OK:
            raise payload.block.bad_record(row)


class RemovalReader:
    """Finds the records that rules remove whatever their keys."""

    def __init__(self, rules: Sequence[RemovalRule], now_ms: int = 0) -> None:
        """Takes the rules, and the time."""
        self._readers = [(rule, RecordLongs(rule.kind, rule.header)) for rule in rules]
        self._now_ms = now_ms

    @classmethod
    def of(cls, rules: RecordRules) -> RemovalReader | None:
        """The reader for a compaction; None where no rule is on."""
        return cls(rules.removals, rules.now_ms) if rules.removals else None

    def gone(self, payload: Payload) -> Ints:
        """The numbers within the block of the records of a payload whose moment has come.

        Raises:
            CorruptError: a record is malformed.
        """
        moments = self.moments(payload)
        found: Ints = np.flatnonzero(moments <= self._now_ms)
        return found

    def moments(self, payload: Payload) -> Ints:
        """The moment at which each record of the block goes; NEVER if none, or not in the payload.

        Raises:
            CorruptError: a record is malformed.
        """
        total = payload.block.records_count
        found: Ints = np.full(total, NEVER, dtype=np.int64)
        for rule, longs in self._readers:
            longs.known[:] = False
            longs.read(payload)
            moments = np.where(longs.known[:total], rule.moments(longs.values[:total]), NEVER)
            np.minimum(found, moments, out=found)
        return found
