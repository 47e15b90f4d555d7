"""A broker's registration: records of its start, of its stop, and of a crash in between.

Source: org.apache.kafka.controller.ClusterControlManager.registerBroker,
ReplicationControlManager.handleBrokerFenced, handleBrokerUnfenced,
handleBrokerInControlledShutdown, handleBrokerUncleanShutdown, ProducerIdControlManager; KIP-631,
KIP-966.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cordwood.controller.cluster_view import ClusterView
from cordwood.controller.partition_change import Election, PartitionChange
from cordwood.controller.record_values import require_endpoints, require_feature_ranges
from cordwood.format.metadata_records import with_defaults
from cordwood.metadata.controller_requests import BrokerRegistration
from cordwood.metadata.delta import ImageDelta
from cordwood.metadata.feature_levels import KNOWN_FEATURES, METADATA_VERSION
from cordwood.metadata.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    is_reserved_directory,
)
from cordwood.metadata.records import (
    FENCE,
    UNFENCE,
    ApiRecord,
    Records,
    has_controller_registration,
    has_controller_unregistration,
    has_cordoned_directories,
    has_directories,
    has_elr,
    register_broker_record,
    register_controller_record,
    registration_change,
)
from cordwood.model.kafka_errors import (
    BrokerIdNotRegisteredError,
    ControllerIdNotRegisteredError,
    InvalidRegistrationError,
    InvalidRequestError,
    KafkaError,
    UnsupportedRequestError,
)
from cordwood.model.uuids import uuid_text

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
        # The last of a name, at the place of the first: those of a java.util.LinkedHashMap.
        endpoints=tuple({each.name: each for each in registration.endpoints}.values()),
        features=KNOWN_FEATURES,
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
    records = _after_stop(view, registration) if old is not None else []
    broker = _registered(registration, end_offset)
    yield [*records, register_broker_record(broker, view.image.metadata_version)]
    if has_cordoned_directories(view.image.metadata_version):
        yield [registration_change(broker, 3, cordonedLogDirs=list(registration.cordoned_log_dirs))]


def registering_remote(
    view: ClusterView, registration: BrokerRegistration, end_offset: int
) -> Records:
    """The records of the registration of a broker on another node, that of the broker last.

    A registration of the incarnation that there is amends it.

    Raises:
        InvalidRegistrationError: its directories are not those of one broker.
        InvalidRequestError: a listener, or a range of feature levels, is not possible.
    """
    require_endpoints(registration.endpoints)
    require_feature_ranges(registration.features)
    if has_directories(view.image.metadata_version):
        _require_directories(view, registration)
    old = view.image.brokers.get(registration.broker_id)
    level = view.image.metadata_version
    if old is None or old.incarnation_id != registration.incarnation_id:
        broker = _registered(registration, end_offset)
        return [*_after_stop(view, registration), register_broker_record(broker, level)]
    broker = replace(
        _registered(registration, old.epoch),
        fenced=old.fenced,
        in_controlled_shutdown=old.in_controlled_shutdown,
    )
    return [register_broker_record(broker, level)]


def _registered(registration: BrokerRegistration, epoch: int) -> BrokerImage:
    return BrokerImage(
        broker_id=registration.broker_id,
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        rack=registration.rack,
        fenced=True,
        in_controlled_shutdown=False,
        log_dirs=sorted_directories(registration.log_dirs),
        # The last of a name, at the place of the first: those of a java.util.LinkedHashMap.
        endpoints=tuple({each.name: each for each in registration.endpoints}.values()),
        features=registration.features,
    )


def _require_directories(view: ClusterView, registration: BrokerRegistration) -> None:
    found = registration.log_dirs
    if not found:
        raise InvalidRegistrationError("No directories specified in request")
    if any(is_reserved_directory(each) for each in found):
        raise InvalidRegistrationError("Reserved directory ID in request")
    if len(set(found)) != len(found):
        raise InvalidRegistrationError("Duplicate directory ID in request")
    for broker in view.image.brokers.values():
        taken = set(found).intersection(broker.log_dirs)
        if taken and broker.broker_id != registration.broker_id:
            raise InvalidRegistrationError(
                f"Broker {broker.broker_id} is already registered with directory "
                f"{uuid_text(min(taken))}"
            )


def require_features(
    finalized: Mapping[str, int], supported: Mapping[str, tuple[int, int]]
) -> None:
    """Checks that a broker supports the levels of the cluster, `kraft.version` among them.

    Raises:
        UnsupportedRequestError: it does not support one.
        InvalidRegistrationError: it does not say which metadata.version it supports.
    """
    levels = {name: finalized.get(name, 0) for name in supported}
    levels |= {name: level for name, level in finalized.items() if level}
    for name, level in levels.items():
        lowest, highest = supported.get(name, (0, 0))
        if name == METADATA_VERSION and name not in supported:
            continue
        if not lowest <= level <= highest:
            raise UnsupportedRequestError(
                f"Unable to register because the broker does not support finalized version {level} "
                f"of {name}. The broker wants a version between {lowest} and {highest}, inclusive."
            )
    if METADATA_VERSION not in supported:
        raise InvalidRegistrationError(f"Request features do not contain '{METADATA_VERSION}'")


def unfencing(view: ClusterView, broker: BrokerImage) -> Records:
    """The records that unfence a broker, and elect it for leaderless partitions."""
    broker_id = broker.broker_id
    changes = _Changes(view, lambda each: each == broker_id or view.is_active(each))
    without_leader = changes.of(lambda _topic, _number, partition: partition.leader < 0)
    return [registration_change(broker, 0, fenced=UNFENCE), *without_leader]


def shutting_down(view: ClusterView, broker: BrokerImage) -> Records:
    """The records of a controlled shutdown: the broker leaves all ISRs and leads nothing."""
    left = leaving(view, broker.broker_id)
    if broker.in_controlled_shutdown:
        return left
    return [registration_change(broker, 1, inControlledShutdown=1), *left]


def fencing_again(view: ClusterView, image: MetadataImage, broker: BrokerImage) -> Records:
    """The records that fence a broker again after a controlled shutdown was cancelled."""
    return fencing(replace(view, image=image), broker)


def fencing(view: ClusterView, broker: BrokerImage) -> Records:
    """The records that fence a broker that has stopped."""
    return [*leaving(view, broker.broker_id), registration_change(broker, 0, fenced=FENCE)]


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

    def lies_there(_topic_id: uuid.UUID, _number: int, partition: PartitionImage) -> bool:
        return partition.directory_of(broker_id) in failed

    left = [each for each in broker.log_dirs if each not in failed]
    return [
        *leaving(view, broker_id, lies_there),
        registration_change(broker, 2, logDirs=list(left)),
    ]


def cordoning(
    view: ClusterView, broker: BrokerImage, directories: Collection[uuid.UUID]
) -> Records:
    """The record of the directories of the broker that take no new partitions, if others did."""
    if not has_cordoned_directories(view.image.metadata_version) or set(directories) == set(
        broker.cordoned_log_dirs or ()
    ):
        return []
    return [registration_change(broker, 3, cordonedLogDirs=list(directories))]


def unregistering(view: ClusterView, broker_id: int) -> Records:
    """The record that removes a broker's registration, and those that its replicas need.

    Raises:
        BrokerIdNotRegisteredError: it is not known.
    """
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise BrokerIdNotRegisteredError(f"Broker ID {broker_id} is not currently registered")
    fields = {"brokerId": broker_id, "brokerEpoch": broker.epoch}
    return [*leaving(view, broker_id), ApiRecord("UnregisterBrokerRecord", 0, fields)]


def unregistering_controller(view: ClusterView, controller_id: int, active_id: int) -> Records:
    """The record that removes the registration of a controller that is not the active one.

    Raises:
        InvalidRequestError: it is the active one.
        UnsupportedRequestError: the cluster's metadata.version is too low for it.
        ControllerIdNotRegisteredError: it is not known.

    Source: QuorumController.unregisterController, ClusterControlManager.unregisterController.
    """
    if controller_id == active_id:
        raise InvalidRequestError("Controller cannot unregister itself while it is active.")
    if not has_controller_unregistration(view.image.metadata_version):
        raise UnsupportedRequestError(
            "The current MetadataVersion is too old to support controller unregistration."
        )
    if controller_id not in view.image.controllers:
        raise ControllerIdNotRegisteredError(
            f"Controller ID {controller_id} is not currently registered."
        )
    return [ApiRecord("UnregisterControllerRecord", 0, {"controllerId": controller_id})]


def producer_ids(
    view: ClusterView, broker_id: int, broker_epoch: int
) -> tuple[Records, tuple[int, int]]:
    """The record of the next block of producer ids, and the block: (first id, count).

    Raises:
        KafkaError: there are none left.

    Source: ProducerIdControlManager.generateNextProducerId.
    """
    first = max(view.image.next_producer_id, 0)
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
    return [ApiRecord("ProducerIdsRecord", 0, fields)], (first, PRODUCER_ID_BLOCK)


def leaving(
    view: ClusterView,
    broker_id: int,
    concerns: Callable[[uuid.UUID, int, PartitionImage], bool] | None = None,
) -> Records:
    """The records that take a broker out of ISRs, and of the leadership.

    Args:
        view: the cluster.
        broker_id: of the broker.
        concerns: whether a partition, given with its topic's id and its number, is concerned; all
            whose ISR has the broker if None.
    """
    changes = _Changes(view, lambda each: each != broker_id and view.is_active(each))
    changes.leaving = broker_id
    return changes.of(concerns or (lambda _topic, _number, each: broker_id in each.isr))


def _after_stop(view: ClusterView, registration: BrokerRegistration) -> Records:
    """The records that complete the stop, or the crash, of a broker's last incarnation.

    Source: ReplicationControlManager.handleBrokerShutdown.
    """
    broker_id = registration.broker_id
    old = view.image.brokers.get(broker_id)
    is_clean = old is not None and registration.previous_broker_epoch == old.epoch
    if is_clean or not has_elr(view.image.features):
        return leaving(view, broker_id)
    # It may have lost records: it is no longer an eligible leader (KIP-966).
    changes = _Changes(view, lambda each: each != broker_id and view.is_active(each))
    changes.leaving = broker_id
    changes.lost = (broker_id,)
    return changes.of(lambda _topic, _number, each: broker_id in (*each.isr, *each.elr))


def sorted_directories(directories: Iterable[uuid.UUID]) -> tuple[uuid.UUID, ...]:
    """Sorts ids in Kafka's order, in which both halves of an id are signed numbers."""
    return tuple(sorted(directories, key=lambda each: struct.unpack(">qq", each.bytes)))


class _Changes:
    """Changes of all partitions that one broker's coming or going makes."""

    def __init__(self, view: ClusterView, may_lead: Callable[[int], bool]) -> None:
        self._view = view
        self._context = view.change_context(may_lead)
        self.leaving: int | None = None
        self.lost: tuple[int, ...] = ()

    def of(self, concerns: Callable[[uuid.UUID, int, PartitionImage], bool]) -> Records:
        """The records of the partitions that it concerns."""
        view = self._view
        found: Records = []
        for topic in view.image.topics.values():
            is_unclean_allowed: bool | None = None
            for number, partition in topic.partitions.items():
                if not concerns(topic.topic_id, number, partition):
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
    """The view after these records are applied."""
    delta = ImageDelta(view.image)
    for record in records:
        delta.apply(record.name, with_defaults(record.name, record.fields))
    image = delta.image(next_offset=view.image.next_offset, epoch=view.image.epoch)
    return replace(view, image=image)
