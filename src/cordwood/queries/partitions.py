"""Partitions in answers: their names, and those that an answer does not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cordwood.cleanup.plan.report import PartitionReport, Status


class OfPartition(Protocol):
    """A part of an answer that is about one partition."""

    @property
    def topic(self) -> str:
        """The name of its topic."""

    @property
    def partition(self) -> int:
        """Its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedPartition:
    """A partition that an answer does not have, and why."""

    topic: str
    partition: int
    reason: str


def partition_name(of: OfPartition) -> str:
    """Topic and partition, as the name of a directory."""
    return f"{of.topic}-{of.partition}"


def replica_name(of: OfPartition, node_id: int | None) -> str:
    """Topic and partition, and the broker of a replica if several were asked."""
    name = partition_name(of)
    return name if node_id is None else f"{name} on broker {node_id}"


def skipped_partitions(
    partitions: Sequence[PartitionReport], status: Status
) -> tuple[SkippedPartition, ...]:
    """The partitions that a survey has left with this status."""
    return tuple(
        SkippedPartition(topic=each.topic, partition=each.partition, reason=each.reason)
        for each in partitions
        if each.status is status
    )
