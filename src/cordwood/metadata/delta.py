"""Records of the metadata log, applied to an image: what each kind of record changes.

Records between a Begin and an End record count together, or not at all.

Source: org.apache.kafka.image.MetadataDelta and the deltas of its parts, Kafka 4.3; KIP-868.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from cordwood.configs.resource import ConfigResource
from cordwood.format.metadata_records import MetadataRecord
from cordwood.metadata.image import (
    MIGRATING_DIRECTORY,
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)
from cordwood.metadata.persistent_map import PersistentMap
from cordwood.model.errors import CorruptError
from cordwood.model.topic_names import topic_name_fault
from cordwood.model.uuids import uuid_text

_UNCHANGED_LEADER = -2
_UNCHANGED_STATE = -1
_FENCE, _UNFENCE = 1, -1

_Item = TypeVar("_Item")
K = TypeVar("K")
V = TypeVar("V")
Fields = Mapping[str, Any]


class _MapDelta(Generic[K, V]):
    """A mapping of an image under change."""

    __slots__ = ("_base", "changes", "gone")

    def __init__(self, base: PersistentMap[K, V]) -> None:
        self._base = base
        self.changes: dict[K, V] = {}
        self.gone: set[K] = set()

    def get(self, key: K) -> V | None:
        found = self.changes.get(key)
        if found is not None or key in self.gone:
            return found
        return self._base.get(key)

    def put(self, key: K, value: V) -> None:
        self.changes[key] = value

    def remove(self, key: K) -> None:
        self.changes.pop(key, None)
        self.gone.add(key)

    def keys(self) -> set[K]:
        return ({*self._base} - self.gone) | self.changes.keys()

    def finish(self) -> PersistentMap[K, V]:
        return self._base.changed(self.changes, self.gone)


class ImageDelta:
    """An image under change: `take` records, then `image`.

    Invariant: `_before` is the image before the transaction that is open, None without one.
    """

    def __init__(self, base: MetadataImage | None = None) -> None:
        self._before: MetadataImage | None = None
        self._start(base or MetadataImage())
        self._changes: Mapping[str, Callable[[Fields], None]] = {
            "TopicRecord": self._topic,
            "RemoveTopicRecord": self._remove_topic,
            "PartitionRecord": self._partition,
            "PartitionChangeRecord": self._partition_change,
            "ClearElrRecord": self._clear_elr,
            "ConfigRecord": self._config,
            "FeatureLevelRecord": self._feature_level,
            "RegisterBrokerRecord": self._register_broker,
            "UnregisterBrokerRecord": self._unregister_broker,
            "BrokerRegistrationChangeRecord": self._change_registration,
            "FenceBrokerRecord": lambda fields: self._fence(fields, fenced=True),
            "UnfenceBrokerRecord": lambda fields: self._fence(fields, fenced=False),
            "RegisterControllerRecord": self._register_controller,
            "UnregisterControllerRecord": self._unregister_controller,
            "ClientQuotaRecord": self._client_quota,
            "ProducerIdsRecord": self._producer_ids,
            "AccessControlEntryRecord": self._acl,
            "RemoveAccessControlEntryRecord": self._remove_acl,
            "UserScramCredentialRecord": self._scram,
            "RemoveUserScramCredentialRecord": self._remove_scram,
            "DelegationTokenRecord": self._token,
            "RemoveDelegationTokenRecord": self._remove_token,
            "BeginTransactionRecord": lambda _: self._begin(),
            "EndTransactionRecord": lambda _: self._end(),
            "AbortTransactionRecord": lambda _: self._abort(),
        }

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._before is not None

    def image(self, *, next_offset: int, epoch: int, timestamp_ms: int = -1) -> MetadataImage:
        """The image after the records so far, without those of a transaction that is open."""
        if self._before is None:
            image = self._finish()
            self._open_topics.clear()  # their partitions are the image's from now on
        else:
            image = self._before
        return replace(image, next_offset=next_offset, epoch=epoch, timestamp_ms=timestamp_ms)

    def take(self, record: MetadataRecord) -> None:
        """Applies a record; records of kinds that an image does not hold change nothing.

        Raises:
            CorruptError: the record contradicts earlier records.
        """
        self.apply(record.name, record.fields)

    def apply(self, name: str, fields: Fields) -> None:
        """Applies the record `name`; all its fields have to be there."""
        change = self._changes.get(name)
        if change is not None:
            change(fields)

    def _start(self, base: MetadataImage) -> None:
        self._base = base
        self._topics = _MapDelta(base.topics)
        self._names = _MapDelta(base.topic_names)
        self._configs = _MapDelta(base.configs)
        self._brokers = _MapDelta(base.brokers)
        self._controllers = _MapDelta(base.controllers)
        self._features = _MapDelta(base.features)
        self._quotas = _MapDelta(base.client_quotas)
        self._acls = _MapDelta(base.acls)
        self._scrams = _MapDelta(base.scram_credentials)
        self._tokens = _MapDelta(base.delegation_tokens)
        self._next_producer_id = base.next_producer_id
        self._open_topics: dict[uuid.UUID, dict[int, PartitionImage]] = {}

    def _finish(self) -> MetadataImage:
        return replace(
            self._base,
            topics=self._topics.finish(),
            topic_names=self._names.finish(),
            configs=self._configs.finish(),
            brokers=self._brokers.finish(),
            controllers=self._controllers.finish(),
            features=self._features.finish(),
            client_quotas=self._quotas.finish(),
            acls=self._acls.finish(),
            scram_credentials=self._scrams.finish(),
            delegation_tokens=self._tokens.finish(),
            next_producer_id=self._next_producer_id,
        )

    # ---- transactions

    def _begin(self) -> None:
        if self._before is not None:
            raise CorruptError("a metadata transaction begins inside another")
        before = self._finish()
        self._start(before)
        self._before = before

    def _end(self) -> None:
        if self._before is None:
            raise CorruptError("a metadata transaction ends that never began")
        self._before = None

    def _abort(self) -> None:
        if self._before is None:
            raise CorruptError("a metadata transaction is aborted that never began")
        self._start(self._before)
        self._before = None

    # ---- topics

    def _topic(self, fields: Fields) -> None:
        topic_id = fields["topicId"]
        fault = topic_name_fault(fields["name"])
        if fault is not None:  # directories are named by it
            raise CorruptError(f"topic {uuid_text(topic_id)} has an illegal name: {fault[:600]}")
        self._names.put(topic_id, fields["name"])
        self._open(TopicImage(name=fields["name"], topic_id=topic_id))

    def _remove_topic(self, fields: Fields) -> None:
        topic_id = fields["topicId"]
        name = self._names.get(topic_id)
        if name is None:
            raise CorruptError(f"a missing topic is removed: {uuid_text(fields['topicId'])}")
        self._names.remove(topic_id)
        self._topics.remove(name)
        self._configs.remove((ConfigResource.TOPIC, name))
        self._open_topics.pop(topic_id, None)

    def _partition(self, fields: Fields) -> None:
        replicas = tuple(fields["replicas"])
        directories = tuple(fields["directories"])
        self._partitions_of(fields)[fields["partitionId"]] = PartitionImage(
            replicas=replicas,
            isr=tuple(fields["isr"]),
            leader=fields["leader"],
            leader_epoch=fields["leaderEpoch"],
            partition_epoch=fields["partitionEpoch"],
            directories=directories,
            removing_replicas=tuple(fields["removingReplicas"]),
            adding_replicas=tuple(fields["addingReplicas"]),
            elr=tuple(fields["eligibleLeaderReplicas"] or ()),
            last_known_elr=tuple(fields["lastKnownElr"] or ()),
            recovery_state=fields["leaderRecoveryState"],
        )

    def _partition_change(self, fields: Fields) -> None:
        partitions = self._partitions_of(fields)
        old = partitions.get(fields["partitionId"])
        if old is None:
            raise CorruptError(
                f"partition {fields['partitionId']} of topic {uuid_text(fields['topicId'])} "
                "changes, and is not there"
            )
        partitions[fields["partitionId"]] = changed_partition(old, fields)

    def _partitions_of(self, fields: Fields) -> dict[int, PartitionImage]:
        topic_id = fields["topicId"]
        partitions = self._open_topics.get(topic_id)
        if partitions is not None:
            return partitions
        name = self._names.get(topic_id)
        topic = None if name is None else self._topics.get(name)
        if topic is None:
            raise CorruptError(
                f"partition {fields['partitionId']} of topic {uuid_text(fields['topicId'])}, "
                "and there is no such topic"
            )
        return self._open(topic)

    def _open(self, topic: TopicImage) -> dict[int, PartitionImage]:
        """Partitions to change: a copy, which is the topic's from now on, and no other image's."""
        partitions = dict(topic.partitions)
        self._open_topics[topic.topic_id] = partitions
        self._topics.put(topic.name, replace(topic, partitions=partitions))
        return partitions

    def _clear_elr(self, fields: Fields) -> None:
        """Source: TopicDelta.maybeClearElr, which changes the epoch of a partition that had any."""
        names = [fields["topicName"]] if fields["topicName"] else sorted(self._topics.keys())
        for name in names:
            topic = self._topics.get(name)
            if topic is None:
                raise CorruptError(f"eligible leader replicas of a missing topic: {name}")
            cleared = {
                number: replace(
                    each, elr=(), last_known_elr=(), partition_epoch=each.partition_epoch + 1
                )
                for number, each in topic.partitions.items()
                if each.elr or each.last_known_elr
            }
            if cleared:
                self._open(topic).update(cleared)

    # ---- settings, features, quotas

    def _config(self, fields: Fields) -> None:
        resource = (fields["resourceType"], fields["resourceName"])
        settings = dict(self._configs.get(resource) or {})
        if fields["value"] is None:
            settings.pop(fields["name"], None)
        else:
            settings[fields["name"]] = fields["value"]
        if settings:
            self._configs.put(resource, settings)
        else:
            self._configs.remove(resource)

    def _feature_level(self, fields: Fields) -> None:
        if fields["featureLevel"]:
            self._features.put(fields["name"], fields["featureLevel"])
        else:
            self._features.remove(fields["name"])

    def _client_quota(self, fields: Fields) -> None:
        entity: QuotaEntity = frozenset(
            (each["entityType"], each["entityName"]) for each in fields["entity"]
        )
        quotas = dict(self._quotas.get(entity) or {})
        if fields["remove"]:
            quotas.pop(fields["key"], None)
        else:
            quotas[fields["key"]] = fields["value"]
        if quotas:
            self._quotas.put(entity, quotas)
        else:
            self._quotas.remove(entity)

    def _producer_ids(self, fields: Fields) -> None:
        self._next_producer_id = fields["nextProducerId"]

    # ---- nodes

    def _register_broker(self, fields: Fields) -> None:
        cordoned = fields["cordonedLogDirs"]
        self._brokers.put(
            fields["brokerId"],
            BrokerImage(
                broker_id=fields["brokerId"],
                epoch=fields["brokerEpoch"],
                incarnation_id=fields["incarnationId"],
                rack=fields["rack"],
                fenced=fields["fenced"],
                in_controlled_shutdown=fields["inControlledShutdown"],
                log_dirs=tuple(fields["logDirs"]),
                endpoints=_endpoints(fields["endPoints"]),
                features=_features(fields["features"]),
                cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
                is_migrating_zk_broker=fields["isMigratingZkBroker"],
            ),
        )

    def _unregister_broker(self, fields: Fields) -> None:
        self._broker(fields["brokerId"], fields["brokerEpoch"])
        self._brokers.remove(fields["brokerId"])

    def _change_registration(self, fields: Fields) -> None:
        broker = self._broker(fields["brokerId"], fields["brokerEpoch"])
        cordoned = fields["cordonedLogDirs"]
        self._brokers.put(
            broker.broker_id,
            replace(
                broker,
                fenced={_FENCE: True, _UNFENCE: False}.get(fields["fenced"], broker.fenced),
                in_controlled_shutdown=broker.in_controlled_shutdown
                or fields["inControlledShutdown"] == 1,
                log_dirs=tuple(fields["logDirs"]) or broker.log_dirs,
                cordoned_log_dirs=broker.cordoned_log_dirs if cordoned is None else tuple(cordoned),
            ),
        )

    def _fence(self, fields: Fields, *, fenced: bool) -> None:
        broker = self._broker(fields["id"], fields["epoch"])
        self._brokers.put(broker.broker_id, replace(broker, fenced=fenced))

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise CorruptError(f"broker {broker_id} of epoch {epoch} is not registered")
        return broker

    def _register_controller(self, fields: Fields) -> None:
        self._controllers.put(
            fields["controllerId"],
            ControllerImage(
                controller_id=fields["controllerId"],
                incarnation_id=fields["incarnationId"],
                zk_migration_ready=fields["zkMigrationReady"],
                endpoints=_endpoints(fields["endPoints"]),
                features=_features(fields["features"]),
            ),
        )

    def _unregister_controller(self, fields: Fields) -> None:
        self._controllers.remove(fields["controllerId"])

    # ---- security

    def _acl(self, fields: Fields) -> None:
        self._acls.put(fields["id"], dict(fields))

    def _remove_acl(self, fields: Fields) -> None:
        if self._acls.get(fields["id"]) is None:
            raise CorruptError(f"a missing ACL is removed: {uuid_text(fields['id'])}")
        self._acls.remove(fields["id"])

    def _scram(self, fields: Fields) -> None:
        self._scrams.put((fields["mechanism"], fields["name"]), dict(fields))

    def _remove_scram(self, fields: Fields) -> None:
        self._scrams.remove((fields["mechanism"], fields["name"]))

    def _token(self, fields: Fields) -> None:
        self._tokens.put(fields["tokenId"], dict(fields))

    def _remove_token(self, fields: Fields) -> None:
        self._tokens.remove(fields["tokenId"])


def changed_partition(old: PartitionImage, fields: Fields) -> PartitionImage:
    """A partition after a PartitionChangeRecord with these fields.

    Any record raises the partition epoch; one that names a leader, the same or another, raises the
    leader epoch as well.

    Source: org.apache.kafka.metadata.PartitionRegistration.merge.
    """
    has_election = fields["leader"] != _UNCHANGED_LEADER
    state = fields["leaderRecoveryState"]
    directories = fields["directories"]
    replicas = _changed(fields["replicas"], old.replicas)
    return PartitionImage(
        replicas=replicas,
        isr=_changed(fields["isr"], old.isr),
        leader=fields["leader"] if has_election else old.leader,
        leader_epoch=old.leader_epoch + has_election,
        partition_epoch=old.partition_epoch + 1,
        directories=_directories(old, replicas) if directories is None else tuple(directories),
        removing_replicas=_changed(fields["removingReplicas"], old.removing_replicas),
        adding_replicas=_changed(fields["addingReplicas"], old.adding_replicas),
        elr=_changed(fields["eligibleLeaderReplicas"], old.elr),
        last_known_elr=_changed(fields["lastKnownElr"], old.last_known_elr),
        recovery_state=old.recovery_state if state == _UNCHANGED_STATE else state,
    )


def _directories(old: PartitionImage, replicas: tuple[int, ...]) -> tuple[uuid.UUID, ...]:
    """Directories of replicas that a record without directories, of an old version, changed."""
    if replicas == old.replicas or not old.directories:
        return old.directories
    known = dict(zip(old.replicas, old.directories, strict=False))
    return tuple(known.get(each, MIGRATING_DIRECTORY) for each in replicas)


def _changed(new: Sequence[_Item] | None, old: tuple[_Item, ...]) -> tuple[_Item, ...]:
    return old if new is None else tuple(new)


def _endpoints(points: Sequence[Fields]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(
            name=point["name"],
            host=point["host"],
            port=point["port"],
            security_protocol=point["securityProtocol"],
        )
        for point in points
    )


def _features(features: Sequence[Fields]) -> dict[str, tuple[int, int]]:
    return {
        each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"])
        for each in features
    }
