"""Facts about the segments of a compaction, as bits, and how they travel."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.rules.transactions import TransactionSummary


@dataclass(slots=True)
class SegmentFacts:
    """The result of a walk over a segment.

    `keep` and `nulls` hold one bit a record, in order, lowest bit first: survives by its key, and
    has a null value. Control records and records of aborted transactions are never in `keep`.
    `expired` are those that a rule removes whatever their keys; empty where there is none.
    `pinned` are the records that have beaten a newer one, where records have versions: such a
    tombstone stays, whatever its horizon, until a compaction in which there is no such record. Else
    one that ends after it has removed the tombstone would bring the newer one back to life.
    """

    base_offset: int
    records: int = 0
    batches: int = 0
    unkeyed: int = 0
    aborted: int = 0
    #: A batch whose bytes may have to change although all its records survive.
    special: bool = False
    keep: bytes = b""
    nulls: bytes = b""
    pinned: bytes = b""
    expired: bytes = b""
    transactions: TransactionSummary = field(default_factory=TransactionSummary)


def removable_by_age(expired: bytes, pinned: bytes) -> bytes:
    """The bits of the records that a rule removes and that are not pinned."""
    left = int.from_bytes(expired, "little") & ~int.from_bytes(pinned, "little")
    return left.to_bytes(len(expired), "little")


def count_set(bits: bytes) -> int:
    """The number of bits that are set."""
    return int.from_bytes(bits, "little").bit_count()


def facts_to_json(facts: Sequence[SegmentFacts]) -> bytes:
    """Facts as a task sends them."""
    return json.dumps(
        [
            {
                "base_offset": f.base_offset,
                "records": f.records,
                "batches": f.batches,
                "unkeyed": f.unkeyed,
                "aborted": f.aborted,
                "special": f.special,
                "keep": base64.b64encode(f.keep).decode(),
                "nulls": base64.b64encode(f.nulls).decode(),
                "pinned": base64.b64encode(f.pinned).decode(),
                "expired": base64.b64encode(f.expired).decode(),
                "transactions": f.transactions.to_json(),
            }
            for f in facts
        ]
    ).encode()


def facts_from_json(data: bytes) -> list[SegmentFacts]:
    """The inverse of `facts_to_json`."""

    def one(value: dict[str, Any]) -> SegmentFacts:
        return SegmentFacts(
            **value
            | {
                "keep": base64.b64decode(value["keep"]),
                "nulls": base64.b64decode(value["nulls"]),
                "pinned": base64.b64decode(value["pinned"]),
                "expired": base64.b64decode(value["expired"]),
                "transactions": TransactionSummary.from_json(value["transactions"]),
            }
        )

    return [one(value) for value in json.loads(data)]


def clear_dead(facts: Sequence[SegmentFacts], dead: npt.NDArray[np.uint64]) -> None:
    """Clears, in the facts of a chunk, the bits of superseded records by ordinal."""
    for fact, gone in _bits_of(facts, dead):
        fact.keep = (np.frombuffer(fact.keep, dtype=np.uint8) & ~gone).tobytes()


def set_pinned(facts: Sequence[SegmentFacts], pinned: npt.NDArray[np.uint64]) -> None:
    """Sets, in the facts of a chunk, the bits of pinned records by ordinal, and no others."""
    for fact, bits in _bits_of(facts, pinned):
        fact.pinned = bits.tobytes()


def _bits_of(
    facts: Sequence[SegmentFacts], ordinals: npt.NDArray[np.uint64]
) -> Iterator[tuple[SegmentFacts, npt.NDArray[np.uint8]]]:
    """The bits of some ordinals of a chunk, for each of its segments."""
    total = 0
    starts = []
    for fact in facts:
        starts.append(total)
        total += -(-fact.records // 8) * 8
    mask = np.zeros(total, dtype=np.bool_)
    mask[ordinals.astype(np.int64)] = True
    packed = np.packbits(mask, bitorder="little")
    for fact, start in zip(facts, starts, strict=True):
        yield fact, packed[start // 8 : start // 8 + len(fact.keep)]
