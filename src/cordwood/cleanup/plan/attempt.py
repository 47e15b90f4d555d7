"""One attempt at a compaction: what it may take, beside what its plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cordwood.model.rng import Rng

#: More bytes than any compaction takes.
AMPLE_BYTES: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits that the user sets for compactions.

    An attempt may take `space_max` bytes for a while, and its tasks may read and write
    `throttle_bytes` a second; None for no limit. With `verify`, what is written is compared with
    its source.
    """

    space_max: int | None = None
    throttle_bytes: int | None = None
    verify: bool = False

    def shared(self, tasks: int) -> Limits:
        """The share of each of so many tasks."""
        space, rate = self.space_max, self.throttle_bytes
        return replace(
            self,
            space_max=None if space is None else space // tasks,
            throttle_bytes=None if rate is None else max(1, rate // tasks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt, which no journal has: the next one at the same plan is another.

    `token` is in the names of what its tasks stage; no other attempt has it. `seed` is that of the
    hashes of keys, of a plan that is new: who writes keys must not know it. `free_bytes` is the
    free space of the file system. With `is_measured` its tasks write no segment, and only announce
    what they would write.
    """

    token: str = ""
    seed: int = 0
    free_bytes: int = AMPLE_BYTES
    limits: Limits = field(default_factory=Limits)
    is_measured: bool = False

    @classmethod
    def drawn(cls, rng: Rng, limits: Limits, *, free_bytes: int = AMPLE_BYTES) -> Attempt:
        """A new attempt, with a token and a seed that nobody knows before."""
        seed = int(rng.unique_id(), 16) >> 1
        return cls(token=rng.unique_id()[:8], seed=seed, free_bytes=free_bytes, limits=limits)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Attempt:
        """The inverse of `asdict`."""
        return cls(**{**value, "limits": Limits(**value["limits"])})
