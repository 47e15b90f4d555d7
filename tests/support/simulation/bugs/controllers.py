"""Bugs in the controller."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from cordwood.controller import partition_change, partitions, registration
from cordwood.controller.cluster_control import ClusterControl
from cordwood.controller.cluster_view import ClusterView
from cordwood.metadata import records
from cordwood.metadata.controller_requests import BrokerRegistration, IsrChange
from cordwood.metadata.image import BrokerImage, PartitionImage
from cordwood.metadata.records import FENCE, Records, registration_change
from cordwood.model.error_codes import ErrorCode
from support.simulation.bugs.planting import replaced


def fenced_broker_stays_in_sync() -> AbstractContextManager[None]:
    """The controller fences a broker, and leaves it in the ISRs; the leader moves all the same."""
    real = partition_change.PartitionChange.record

    def record(self: partition_change.PartitionChange) -> Any:
        if len(self.isr) < len(self.old.isr):
            gone = [each for each in self.old.isr if each not in self.isr]
            self.isr = [*self.isr, *gone]
        return real(self)

    return replaced(partition_change.PartitionChange, "record", record)


def unclean_replica_elected() -> AbstractContextManager[None]:
    """Any replica that is alive is elected, as if unclean elections were allowed."""
    return replaced(
        partition_change.PartitionChange,
        "_is_eligible",
        lambda self, replica: self._may_lead(replica),
    )


def stale_broker_epochs_taken() -> AbstractContextManager[None]:
    """Requests of a broker's life before are carried out."""

    def require_epoch(self: ClusterControl, broker_id: int, _broker_epoch: int) -> BrokerImage:
        return self._controller.image.brokers[broker_id]

    return replaced(ClusterControl, "require_epoch", require_epoch)


def isr_members_of_old_registrations_taken() -> AbstractContextManager[None]:
    """An ISR may name a broker in the life before, which may have lost its records (KIP-903)."""
    return _proposals(lambda _, __, proposed: proposed._replace(isr=_without_epochs(proposed)))


def _without_epochs(proposed: IsrChange) -> list[tuple[int, int]]:
    return [(replica, -1) for replica, _ in proposed.isr]


def stopping_broker_added() -> AbstractContextManager[None]:
    """A broker that is in a controlled shutdown is added to an ISR."""
    real = partitions._refusal

    def refusal(
        view: ClusterView, broker_id: int, partition: PartitionImage | None, proposed: IsrChange
    ) -> ErrorCode:
        with replaced(BrokerImage, "is_active", property(lambda each: not each.fenced)):
            return real(view, broker_id, partition, proposed)

    return replaced(partitions, "_refusal", refusal)


def partition_epoch_ignored() -> AbstractContextManager[None]:
    """An ISR is taken that was proposed before the partition changed."""

    def as_of_now(
        _view: ClusterView, partition: PartitionImage | None, proposed: IsrChange
    ) -> IsrChange:
        if partition is None or proposed.partition_epoch > partition.partition_epoch:
            return proposed
        return proposed._replace(partition_epoch=partition.partition_epoch)

    return _proposals(as_of_now)


def _proposals(change: Any) -> AbstractContextManager[None]:
    """Other ISRs are checked than those that were proposed."""
    real = partitions._refusal

    def refusal(
        view: ClusterView, broker_id: int, partition: PartitionImage | None, proposed: IsrChange
    ) -> ErrorCode:
        return real(view, broker_id, partition, change(view, partition, proposed))

    return replaced(partitions, "_refusal", refusal)


def crashed_broker_stays_eligible() -> AbstractContextManager[None]:
    """A broker that comes back after a crash may still be elected, as after a stop in order."""
    real = registration._after_stop

    def after_stop(view: ClusterView, broker: BrokerRegistration) -> Records:
        old = view.image.brokers.get(broker.broker_id)
        if old is not None:
            broker = replace(broker, previous_broker_epoch=old.epoch)
        return real(view, broker)

    return replaced(registration, "_after_stop", after_stop)


def snapshot_with_all_in_sync() -> AbstractContextManager[None]:
    """A snapshot of the metadata has every replica in the ISR."""
    real = records.partition_record

    def partition_record(topic_id: Any, number: int, partition: PartitionImage, level: int) -> Any:
        return real(topic_id, number, replace(partition, isr=partition.replicas), level)

    return replaced(records, "partition_record", partition_record)


def producer_ids_given_twice() -> AbstractContextManager[None]:
    """Two brokers are given the same block of producer ids."""
    real = registration.producer_ids

    def producer_ids(*arguments: Any) -> tuple[Records, tuple[int, int]]:
        (record,), block = real(*arguments)
        return [record._replace(fields={**record.fields, "nextProducerId": block[0]})], block

    return replaced(registration, "producer_ids", producer_ids)


def fenced_broker_goes_on_leading() -> AbstractContextManager[None]:
    """A broker whose session ends is fenced, and keeps its partitions."""

    def fencing(_view: ClusterView, broker: BrokerImage) -> Records:
        return [registration_change(broker, 0, fenced=FENCE)]

    return replaced(registration, "fencing", fencing)
