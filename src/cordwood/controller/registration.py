"""A broker's registration: records of its start, of its stop, and of a crash in between.

Source: org.apache.kafka.controller.ClusterControlManager.registerBroker,
ReplicationControlManager.handleBrokerFenced, handleBrokerUnfenced,
handleBrokerInControlledShutdown, handleBrokerUncleanShutdown, ProducerIdControlManager; KIP-631,
KIP-966.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cordwood.controller.cluster_view import ClusterView
from cordwood.controller.partition_change import Election, PartitionChange
from cordwood.format.metadata_records import with_defaults
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.delta import ImageDelta
from cordwood.metadata.feature_levels import SUPPORTED_FEATURES
from cordwood.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
)
from cordwood.metadata.records import (
    FENCE,
    UNFENCE,
    ApiRecord,
    Records,
    has_controller_registration,
    has_cordoned_directories,
    has_directories,
    has_elr,
    register_broker_record,
    register_controller_record,
    registration_change,
)
from cordwood.model.kafka_errors import BrokerIdNotRegisteredError, KafkaError

PRODUCER_ID_BLOCK = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1
_DEFAULT_CONTROLLER_PORT = 9093


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRegistration:
    """The controller of this process, as it registers."""

    node_id: int
    incarnation_id: uuid.UUID
    endpoints: tuple[Endpoint, ...]


def known_endpoints(
    node_id: int, image: MetadataImage, voters: Sequence[Mapping[str, Any]], default_host: str
) -> tuple[Endpoint, ...]:
    """The recorded endpoints of a controller: the voter's own, or those it last registered."""
    for voter in voters:
        if voter["voterId"] == node_id and voter["endpoints"]:
            return tuple(
                Endpoint(name=each["name"], host=each["host"], port=each["port"])
                for each in voter["endpoints"]
            )
    known = image.controllers.get(node_id)
    if known is not None and known.endpoints:
        return known.endpoints
    return (Endpoint(name="CONTROLLER", host=default_host, port=_DEFAULT_CONTROLLER_PORT),)


def registering_controller(view: ClusterView, registration: ControllerRegistration) -> Records:
    """The record of a controller's start; none at a metadata.version that has no such record."""
    if not has_controller_registration(view.image.metadata_version):
        return []
    controller = ControllerImage(
        controller_id=registration.node_id,
        incarnation_id=registration.incarnation_id,
        zk_migration_ready=False,
        endpoints=registration.endpoints,
        features=SUPPORTED_FEATURES,
    )
    return [register_controller_record(controller)]


def registering(
    view: ClusterView, registration: BrokerRegistration, end_offset: int
) -> Iterator[Records]:
    """The records of a broker's start, in the batches that Kafka writes them in.

    `end_offset` is that of the log: the broker's epoch is the offset of the first record that
    its registration comes with.
    """
    broker_id = registration.broker_id
    old = view.image.brokers.get(broker_id)
    if old is not None and not old.fenced:
        # Unclean shutdown: fence the broker, as a session timeout would.
        fenced = fencing(view, old)
        yield fenced
        view, end_offset = _after(view, fenced), end_offset + len(fenced)
    records: Records = []
    if old is not None and registration.previous_broker_epoch != old.epoch:
        records += _after_unclean_shutdown(view, broker_id)
    broker = BrokerImage(
        broker_id=broker_id,
        epoch=end_offset,
        incarnation_id=registration.incarnation_id,
        rack=registration.rack,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=sorted_directories(registration.log_dirs),
        endpoints=registration.endpoints,
        features=SUPPORTED_FEATURES,
    )
    records.append(register_broker_record(broker, view.image.metadata_version))
    yield records
    if has_cordoned_directories(view.image.metadata_version):
        yield [registration_change(broker, 3, cordonedLogDirs=[])]


def unfencing(view: ClusterView, broker: BrokerImage) -> Records:
    """The broker serves: it leads what has no leader and is its to lead."""
    broker_id = broker.broker_id
    changes = _Changes(view, lambda each: each == broker_id or view.is_active(each))
    without_leader = changes.of(lambda partition: partition.leader < 0)
    return [registration_change(broker, 0, fenced=UNFENCE), *without_leader]


def shutting_down(view: ClusterView, broker: BrokerImage) -> Records:
    """A controlled shutdown begins: the broker leaves all ISRs and leads nothing any more."""
    change = registration_change(broker, 1, inControlledShutdown=1)
    return [change, *_leaving(view, broker.broker_id)]


def fencing_again(view: ClusterView, image: MetadataImage, broker: BrokerImage) -> Records:
    """The records that fence a broker again after a controlled shutdown was cancelled."""
    return fencing(replace(view, image=image), broker)


def fencing(view: ClusterView, broker: BrokerImage) -> Records:
    """The records that fence a broker that has stopped."""
    return [*_leaving(view, broker.broker_id), registration_change(broker, 0, fenced=FENCE)]


def directories_failed(
    view: ClusterView, broker: BrokerImage, directories: Collection[uuid.UUID]
) -> Records:
    """The records for failed directories: their partitions lose this leader, the broker the ids.

    Source: ReplicationControlManager.handleDirectoriesOffline; KIP-858.
    """
    failed = [each for each in broker.log_dirs if each in directories]
    if not failed or not has_directories(view.image.metadata_version):
        return []
    broker_id = broker.broker_id

    def lies_there(partition: PartitionImage) -> bool:
        where = dict(zip(partition.replicas, partition.directories, strict=False))
        return where.get(broker_id) in failed

    changes = _Changes(view, lambda each: each != broker_id and view.is_active(each))
    changes.leaving = broker_id
    left = [each for each in broker.log_dirs if each not in failed]
    return [*changes.of(lies_there), registration_change(broker, 2, logDirs=list(left))]


def cordoning(view: ClusterView, broker: BrokerImage, directories: Sequence[uuid.UUID]) -> Records:
    """The directories of the broker that take no new partitions."""
    if not has_cordoned_directories(view.image.metadata_version) or set(directories) == set(
        broker.cordoned_log_dirs or ()
    ):
        return []
    return [registration_change(broker, 3, cordonedLogDirs=list(directories))]


def unregistering(view: ClusterView, broker_id: int) -> Records:
    """The broker is forgotten.

    Raises:
        BrokerIdNotRegisteredError: it is not known.
    """
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered")
    fields = {"brokerId": broker_id, "brokerEpoch": broker.epoch}
    return [*_leaving(view, broker_id), ApiRecord("UnregisterBrokerRecord", 0, fields)]


def producer_ids(
    image: MetadataImage, broker_id: int, broker_epoch: int
) -> tuple[ApiRecord, int, int]:
    """The record of the next block of producer ids, its first id, and how many they are.

    Raises:
        KafkaError: there are none left.

    Source: ProducerIdControlManager.generateNextProducerId.
    """
    first = max(image.next_producer_id, 0)
    if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        raise KafkaError(
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 "
            "type limit"
        )
    fields = {
        "brokerId": broker_id,
        "brokerEpoch": broker_epoch,
        "nextProducerId": first + PRODUCER_ID_BLOCK,
    }
    return ApiRecord("ProducerIdsRecord", 0, fields), first, PRODUCER_ID_BLOCK


def _leaving(view: ClusterView, broker_id: int) -> Records:
    changes = _Changes(view, lambda each: each != broker_id and view.is_active(each))
    changes.leaving = broker_id
    return changes.of(lambda partition: broker_id in partition.isr)


def _after_unclean_shutdown(view: ClusterView, broker_id: int) -> Records:
    """The broker may have lost records: it is no longer an eligible leader (KIP-966)."""
    if not has_elr(view.image.features):
        return []
    changes = _Changes(view, lambda each: each != broker_id and view.is_active(each))
    changes.leaving = broker_id
    changes.lost = (broker_id,)
    return changes.of(lambda each: broker_id in each.isr or broker_id in each.elr)


def sorted_directories(directories: Iterable[uuid.UUID]) -> tuple[uuid.UUID, ...]:
    """In Kafka's order, in which both halves of an id are signed numbers."""
    return tuple(sorted(directories, key=lambda each: struct.unpack(">qq", each.bytes)))


class _Changes:
    """Changes of all partitions that one broker's coming or going makes."""

    def __init__(self, view: ClusterView, may_lead: Any) -> None:
        self._view = view
        self._context = view.change_context(may_lead)
        self.leaving: int | None = None
        self.lost: tuple[int, ...] = ()

    def of(self, concerns: Any) -> Records:
        """The records of the partitions that it concerns."""
        view = self._view
        found: Records = []
        for topic in view.image.topics.values():
            is_unclean_allowed: bool | None = None
            for number, partition in topic.partitions.items():
                if not concerns(partition):
                    continue
                if is_unclean_allowed is None:
                    is_unclean_allowed = view.allows_unclean_election(topic.name)
                record = self._change(
                    topic.name, topic.topic_id, number, partition, is_unclean_allowed
                )
                if record is not None:
                    found.append(record)
        return found

    def _change(
        self,
        topic: str,
        topic_id: uuid.UUID,
        number: int,
        partition: PartitionImage,
        is_unclean_allowed: bool,
    ) -> ApiRecord | None:
        change = PartitionChange(
            topic_id=topic_id,
            number=number,
            old=partition,
            context=self._context,
            min_isr=self._view.min_isr(topic, len(partition.replicas)),
            election=Election.UNCLEAN if is_unclean_allowed else Election.ONLINE,
            unclean_shutdown=self.lost,
        )
        change.isr = [each for each in partition.isr if each != self.leaving]
        return change.record()


def _after(view: ClusterView, records: Records) -> ClusterView:
    """The view once these records count."""
    delta = ImageDelta(view.image)
    for record in records:
        delta.apply(record.name, with_defaults(record.name, record.fields))
    image = delta.image(next_offset=view.image.next_offset, epoch=view.image.epoch)
    return replace(view, image=image)
