"""The outcome of an attempt to put rewritten segments in place of their sources.

It decides about the staged files: of a rejected attempt they may be removed, and of one whose
outcome is unknown they stay, for they tell recovery how far it came.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    """The rewritten segments are in place, durably."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Nothing has changed, for the reason that `error` gives: the sources are in place."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Unknown:
    """`error` came between the first change and the last: recovery finishes or undoes the rest."""

    error: BaseException


#: Of a compaction of several groups, `Rejected` and `Unknown` are of the first group that is not in
#: place: the groups before it stay, as in Kafka, and those behind it have changed nothing.
Outcome = Committed | Rejected | Unknown
