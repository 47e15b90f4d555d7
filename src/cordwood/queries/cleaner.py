"""The cleaner of a running broker, and those of a cluster's brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase

from cordwood.cleanup.schedule.cleaner_answer import CleanerStatus
from cordwood.queries.brokers import Asked
from cordwood.queries.identity import NodeIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCleaner(CleanerStatus):
    """The cleaner of a broker that is identified."""

    broker: NodeIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCleaners:
    """The cleaners of the brokers of a cluster, each for the replicas on it."""

    brokers: Sequence[BrokerCleaner]


def of_topics(status: CleanerStatus, glob: str) -> CleanerStatus:
    """The status, with only the logs and runs of topics with such names."""

    def is_meant(partition: str) -> bool:
        return fnmatchcase(partition.rpartition("-")[0], glob)

    return replace(
        status,
        partitions=[each for each in status.partitions if fnmatchcase(each.topic, glob)],
        order=[name for name in status.order if is_meant(name)],
        last_runs=[run for run in status.last_runs if is_meant(run.partition)],
    )


def merged(asked: Sequence[Asked[CleanerStatus]]) -> BrokerCleaner | ClusterCleaners:
    """The cleaner of a broker, or those of several."""
    found = [_identified(each.answer, each.broker) for each in asked]
    return found[0] if len(found) == 1 else ClusterCleaners(brokers=found)


def _identified(status: CleanerStatus, broker: NodeIdentity) -> BrokerCleaner:
    values = {each.name: getattr(status, each.name) for each in fields(status)}
    return BrokerCleaner(**values, broker=broker)
