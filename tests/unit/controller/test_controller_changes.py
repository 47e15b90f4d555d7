"""Leaders, reassignments, settings, quotas, features: what the controller says, and records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cordwood.configs.resource import ConfigChange, ConfigResource
from cordwood.controller.controller import Controller
from cordwood.controller.quotas import alter_client_quotas
from cordwood.controller.registration import unregistering_controller
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.controller_requests import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    NewTopic,
    QuotaChange,
    Reassignment,
)
from cordwood.metadata.formatting import Voters
from cordwood.metadata.publisher import MetadataUpdate
from cordwood.metadata.records import ApiRecord
from cordwood.model.kafka_errors import (
    BrokerIdNotRegisteredError,
    ControllerIdNotRegisteredError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    UnknownServerError,
    UnsupportedRequestError,
)
from support.controller_under_test import ControllerUnderTest, names_of, requests_to


@pytest.fixture
def place(tmp_path: Path) -> ControllerUnderTest:
    return ControllerUnderTest(tmp_path / "d")


@pytest.fixture
def controller(place: ControllerUnderTest) -> Controller:
    controller = place.serve()
    requests_to(controller).create_topics([NewTopic(name="t", num_partitions=2)])
    return controller


def said(error: KafkaError | None) -> tuple[int, str]:
    """The code and the text of an error."""
    assert error is not None
    return error.code, str(error)


class TestLeaders:
    def test_one_that_leads_needs_no_election(self, controller: Controller) -> None:
        for election_type in (0, 1):
            (result,) = requests_to(controller).elect_leaders(
                [("t", 0)], election_type=election_type
            )
            assert said(result.error) == (84, "Leader election not needed for topic partition.")
        assert requests_to(controller).elect_leaders(None, election_type=0) == []

    def test_what_is_not_there(self, controller: Controller) -> None:
        results = requests_to(controller).elect_leaders([("nope", 0), ("t", 7)], election_type=0)
        assert [said(each.error) for each in results] == [
            (3, "No such topic as nope"),
            (3, "No such partition as t-7"),
        ]
        with pytest.raises(InvalidRequestError, match="Unknown election type 5"):
            requests_to(controller).elect_leaders([("t", 0)], election_type=5)

    def test_while_the_broker_is_fenced_none_can_lead(
        self, place: ControllerUnderTest, controller: Controller
    ) -> None:
        controller.close()
        fenced = place.open(previous_broker_epoch=controller.broker_epoch)
        preferred, unclean = (
            requests_to(fenced).elect_leaders([("t", 0)], election_type=election_type)[0].error
            for election_type in (0, 1)
        )
        assert said(preferred) == (80, "The preferred leader was not available.")
        assert said(unclean) == (83, "Eligible topic partition leaders are not available.")


class TestReassignments:
    def test_to_where_it_is_changes_nothing(self, controller: Controller) -> None:
        before = controller.image
        assert requests_to(controller).alter_partition_reassignments(
            [Reassignment("t", 0, [1])]
        ) == [None]
        assert controller.image is before

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (
                ("t", 0, [2]),
                (
                    39,
                    "The manual partition assignment includes broker 2, but no such broker is "
                    "registered.",
                ),
            ),
            (("nope", 0, [1]), (3, "Unable to find a topic named nope.")),
            (("t", 9, [1]), (3, "Unable to find partition t:9.")),
            (("t", 0, None), (85, "")),
        ],
    )
    def test_what_cannot_be(
        self, controller: Controller, wanted: Any, expected: tuple[int, str]
    ) -> None:
        (error,) = requests_to(controller).alter_partition_reassignments([Reassignment(*wanted)])
        assert said(error) == expected


class TestSettings:
    def test_values_are_recorded_and_taken_away(self, controller: Controller) -> None:
        topic = (ConfigResource.TOPIC, "t")
        assert requests_to(controller).alter_configs(
            [ConfigChange(resource_type=2, name="t", values={"a": "1", "b": "2"})]
        ) == [None]
        assert controller.image.configs[topic] == {"a": "1", "b": "2"}
        before = controller.image.offset
        requests_to(controller).alter_configs(
            [ConfigChange(resource_type=2, name="t", values={"a": None, "b": "2", "c": None})]
        )
        assert controller.image.configs[topic] == {"b": "2"}
        assert controller.image.offset == before + 1

    def test_a_brokers_setting_given_again_is_recorded_again(self, controller: Controller) -> None:
        change = ConfigChange(resource_type=4, name="1", values={"log.retention.ms": "5"})
        requests_to(controller).alter_configs([change])
        before = controller.image.offset
        requests_to(controller).alter_configs([change])
        assert controller.image.offset == before + 1

    def test_min_insync_replicas_is_the_clusters(
        self, place: ControllerUnderTest, controller: Controller
    ) -> None:
        errors = requests_to(controller).alter_configs(
            [
                ConfigChange(resource_type=4, name="1", values={"min.insync.replicas": "2"}),
                ConfigChange(resource_type=4, name="", values={"min.insync.replicas": None}),
                ConfigChange(resource_type=2, name="t", values={"min.insync.replicas": "2"}),
            ]
        )
        assert said(errors[0]) == (
            40,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
        assert said(errors[1]) == (
            40,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )
        assert errors[2] is None
        assert names_of(place.batches()[-1]) == ["ConfigRecord", "ClearElrRecord"]

    def test_validate_only_records_nothing(self, controller: Controller) -> None:
        before = controller.image
        change = ConfigChange(resource_type=2, name="t", values={"a": "1"})
        assert requests_to(controller).alter_configs([change], validate_only=True) == [None]
        assert controller.image is before


class TestQuotas:
    def test_values_are_recorded_and_taken_away(self, controller: Controller) -> None:
        entity = {"user": "u", "client-id": None}
        requests_to(controller).alter_client_quotas(
            [
                QuotaChange(
                    entity=entity, ops=[("producer_byte_rate", 5.0), ("request_percentage", 0.5)]
                )
            ]
        )
        key = frozenset(entity.items())
        assert controller.image.client_quotas[key] == {
            "producer_byte_rate": 5.0,
            "request_percentage": 0.5,
        }
        removed = [("producer_byte_rate", None), ("request_percentage", None)]
        requests_to(controller).alter_client_quotas([QuotaChange(entity=entity, ops=removed)])
        assert key not in controller.image.client_quotas
        before = controller.image
        requests_to(controller).alter_client_quotas([QuotaChange(entity=entity, ops=removed)])
        assert controller.image is before

    @pytest.mark.parametrize(
        ("entity", "key", "value", "text"),
        [
            ({}, "producer_byte_rate", 1.0, "Invalid empty client quota entity"),
            ({"x": "y"}, "a", 1.0, "Unhandled client quota entity type: x"),
            ({"user": ""}, "a", 1.0, "Empty user not supported"),
            ({"user": "u"}, "nope", 1.0, "Invalid configuration key nope"),
            (
                {"user": "u"},
                "producer_byte_rate",
                0.0,
                "Quota producer_byte_rate must be greater than 0",
            ),
            *(
                # ClientQuotaControlManager.validateQuotaKeyValue of Kafka 4.4.
                ({"user": "u"}, key, value, f"Quota {key} must be a finite number")
                for key in ("producer_byte_rate", "request_percentage")
                for value in (math.nan, math.inf, -math.inf)
            ),
            (
                {"user": "u"},
                "consumer_byte_rate",
                1.5,
                "consumer_byte_rate cannot be a fractional value.",
            ),
            (
                {"user": "u"},
                "consumer_byte_rate",
                1e30,
                "Proposed value for consumer_byte_rate is too large for a LONG.",
            ),
            (
                {"ip": None},
                "connection_creation_rate",
                1e12,
                "Proposed value for connection_creation_rate is too large for an INT.",
            ),
            (
                {"ip": "1.2.3.4", "user": "u"},
                "connection_creation_rate",
                1.0,
                "Invalid quota entity combination, IP entity shouldnot be combined with User or "
                "ClientId",
            ),
            (
                {"ip": "no address"},
                "connection_creation_rate",
                1.0,
                "no address is not a valid IP or resolvable host.",
            ),
        ],
    )
    def test_what_cannot_be(
        self,
        controller: Controller,
        entity: dict[str, str | None],
        key: str,
        value: float,
        text: str,
    ) -> None:
        change = QuotaChange(entity=entity, ops=[(key, value)])
        (error,) = controller.change(lambda view: alter_client_quotas(view, [change], ()))
        assert said(error) == (42, text)

    @pytest.mark.parametrize("name", ["1.2.3.4", "::1", "1.2", "[::1]", "found.example", None])
    def test_an_address_or_a_known_host_has_a_quota(
        self, controller: Controller, name: str | None
    ) -> None:
        change = QuotaChange(entity={"ip": name}, ops=[("connection_creation_rate", 1.0)])
        (error,) = controller.change(
            lambda view: alter_client_quotas(view, [change], known_hosts={"found.example"})
        )
        assert error is None

    @pytest.mark.parametrize(
        "name", ["unknown.example", "1.2.3.4.5", "0x7f000001", "fe80::1%", "[1.2.3.4]", "a:b"]
    )
    def test_a_host_without_an_address_has_no_quota(
        self, controller: Controller, name: str
    ) -> None:
        change = QuotaChange(entity={"ip": name}, ops=[("connection_creation_rate", 1.0)])
        (error,) = controller.change(
            lambda view: alter_client_quotas(view, [change], known_hosts={"found.example"})
        )
        assert said(error) == (42, f"{name} is not a valid IP or resolvable host.")
        assert not controller.image.client_quotas

    def test_an_entity_or_a_key_twice(self, controller: Controller) -> None:
        rate = ("producer_byte_rate", 1.0)
        text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=u})"
        errors = requests_to(controller).alter_client_quotas(
            [QuotaChange(entity={"user": "u"}, ops=[rate, rate])]
        )
        assert [said(each) for each in errors] == [(42, text)]
        errors = requests_to(controller).alter_client_quotas(
            [QuotaChange(entity={"user": "u"}, ops=[rate])] * 2
        )
        assert [said(each) for each in errors] == [(42, text)] * 2


ELR = "eligible.leader.replicas.version"


class TestFeatures:
    def test_down_and_up_again(self, controller: Controller) -> None:
        requests_to(controller).update_features([FeatureUpdate(ELR, 0, 2)])
        assert ELR not in controller.image.features
        requests_to(controller).update_features([FeatureUpdate(ELR, 1)])
        assert controller.image.features[ELR] == 1

    def test_levels_that_are_not_served_are_changed_and_not_shown_to_clients(
        self, tmp_path: Path
    ) -> None:
        levels = {"metadata.version": 30, "group.version": 1, "share.version": 1}
        controller = ControllerUnderTest(tmp_path / "d", features=levels).serve()
        assert controller.image.features == levels
        cache = MetadataCache(lambda: controller.log.kraft_version)
        cache.on_metadata_update(MetadataUpdate(before=None, after=controller.image))
        assert cache.finalized_features() == {
            "metadata.version": 30,
            "group.version": 1,
            "kraft.version": 1,
        }
        levels |= {"metadata.version": 33, "share.version": 2, "streams.version": 1}
        requests_to(controller).update_features(
            [FeatureUpdate(name, level) for name, level in levels.items()]
        )
        assert controller.image.features == levels
        cache.on_metadata_update(MetadataUpdate(before=None, after=controller.image))
        assert cache.finalized_features().keys().isdisjoint({"share.version", "streams.version"})
        requests_to(controller).update_features([FeatureUpdate("share.version", 0, 2)])
        assert "share.version" not in controller.image.features

    def test_static_voters_become_dynamic(self, tmp_path: Path) -> None:
        place = ControllerUnderTest(tmp_path / "d", voters=Voters.STATIC)
        controller = place.serve()
        asked = requests_to(controller)
        raised = [FeatureUpdate("kraft.version", 1), FeatureUpdate("transaction.version", 2)]
        asked.update_features(raised, validate_only=True)
        assert controller.log.kraft_version == 0
        asked.update_features(raised)
        assert names_of(place.batches()[-2]) == ["KRAFT_VERSION", "KRAFT_VOTERS"]
        assert names_of(place.batches()[-1]) == ["NoOpRecord", "FeatureLevelRecord"]
        controller.check_invariants()
        for _ in range(2):
            assert controller.log.kraft_version == 1
            (voter,) = controller.log.voters
            assert (voter["voterId"], voter["voterDirectoryId"]) == (1, place.ids[0])
            assert [each["name"] for each in voter["endpoints"]] == ["CONTROLLER"]
            (replica,) = asked.describe_quorum().voters
            assert replica.directory_id == place.ids[0]
            with pytest.raises(InvalidUpdateVersionError, match="Can't downgrade the version"):
                asked.update_features([FeatureUpdate("kraft.version", 0, 2)])
            controller = place.restarted(controller)
            asked = requests_to(controller)

    def test_with_eligible_leader_replicas_brokers_lose_their_own_min_insync_replicas(
        self, controller: Controller
    ) -> None:
        requests_to(controller).update_features(
            [FeatureUpdate("eligible.leader.replicas.version", 0, 2)]
        )
        requests_to(controller).alter_configs(
            [ConfigChange(resource_type=4, name="1", values={"min.insync.replicas": "2"})]
        )
        requests_to(controller).update_features(
            [FeatureUpdate("eligible.leader.replicas.version", 1)]
        )
        assert (ConfigResource.BROKER, "1") not in controller.image.configs
        assert controller.image.configs[ConfigResource.BROKER, ""]["min.insync.replicas"] == "1"

    @pytest.mark.parametrize(
        ("update", "text"),
        [
            ((ELR, -1, 1), "A feature version cannot be less than 0."),
            (
                (ELR, 0, 1),
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade.",
            ),
            ((ELR, 0, 9), "The controller does not support the given upgrade type."),
            ((ELR, 2, 1), "Local controller 1 only supports versions 0-1"),
            (("share.version", 3, 1), "Local controller 1 only supports versions 0-2"),
            (("nope", 1, 1), "Local controller 1 does not support this feature."),
            (("nope", 0, 1), "Feature nope not found."),
            (("kraft.version", 0, 2), "Can't downgrade the version of this feature."),
        ],
    )
    def test_what_cannot_be(
        self, controller: Controller, update: tuple[str, int, int], text: str
    ) -> None:
        before = controller.image
        with pytest.raises(InvalidUpdateVersionError) as caught:
            requests_to(controller).update_features(
                [FeatureUpdate("share.version", 0, 2), FeatureUpdate(*update)]
            )
        name, level, _ = update
        assert str(caught.value) == f"Invalid update version {level} for feature {name}. {text}"
        assert controller.image is before

    def test_a_metadata_version_that_would_lose_something(self, controller: Controller) -> None:
        with pytest.raises(InvalidUpdateVersionError, match="Refusing to perform"):
            requests_to(controller).update_features([FeatureUpdate("metadata.version", 25, 2)])
        with pytest.raises(InvalidUpdateVersionError, match="Unsafe metadata downgrade"):
            requests_to(controller).update_features([FeatureUpdate("metadata.version", 25, 3)])

    def test_each_metadata_version_of_4_4(self, controller: Controller) -> None:
        def change(level: int, kind: int) -> None:
            requests_to(controller).update_features(
                [FeatureUpdate("metadata.version", level, kind)]
            )

        with pytest.raises(InvalidUpdateVersionError, match="only supports versions 7-33"):
            change(34, UPGRADE)
        change(31, UPGRADE)
        change(30, SAFE_DOWNGRADE)  # 31 has no new record
        change(33, UPGRADE)
        assert controller.image.metadata_version == 33
        for level in (32, 31, 30):
            with pytest.raises(InvalidUpdateVersionError, match="Refusing to perform"):
                change(level, SAFE_DOWNGRADE)

    def test_the_voters_version_is_among_those_in_force(self, controller: Controller) -> None:
        assert controller.log.kraft_version == 1
        assert "kraft.version" not in controller.image.features


def test_a_controller_that_is_not_the_active_one_can_be_forgotten(controller: Controller) -> None:
    requests = requests_to(controller)
    with pytest.raises(InvalidRequestError, match="cannot unregister itself"):
        requests.unregister_controller(1)
    with pytest.raises(UnsupportedRequestError, match="MetadataVersion is too old"):
        requests.unregister_controller(7)
    requests.update_features([FeatureUpdate("metadata.version", 33)])
    with pytest.raises(
        ControllerIdNotRegisteredError, match="Controller ID 7 is not currently registered"
    ):
        requests.unregister_controller(7)
    image = controller.image
    both = image.controllers.changed({7: replace(image.controllers[1], controller_id=7)})
    view = replace(controller.view(), image=replace(image, controllers=both))
    assert unregistering_controller(view, 7, 1) == [
        ApiRecord("UnregisterControllerRecord", 0, {"controllerId": 7})
    ]


def test_a_broker_that_is_not_registered_cannot_be_forgotten(controller: Controller) -> None:
    with pytest.raises(BrokerIdNotRegisteredError, match="Broker ID 7 is not currently registered"):
        requests_to(controller).unregister_broker(7)


def test_a_broker_that_is_forgotten_leads_nothing(
    place: ControllerUnderTest, controller: Controller
) -> None:
    requests_to(controller).unregister_broker(1)
    assert 1 not in controller.image.brokers
    assert controller.image.topics["t"].partitions[0].leader == -1
    controller.close()
    assert place.serve().image.topics["t"].partitions[0].leader == 1


@pytest.mark.parametrize("setting", ["quota", "configs", "topic"])
def test_a_value_that_no_record_can_hold_changes_nothing(
    place: ControllerUnderTest, controller: Controller, setting: str
) -> None:
    name = "u" * 40_000
    before, batches = controller.image, len(place.batches())
    quota = QuotaChange(entity={"user": name}, ops=[("producer_byte_rate", 1.0)])
    config = ConfigChange(resource_type=ConfigResource.GROUP, name=name, values={"a": "1"})
    topic = NewTopic(name="new", configs={"a": name})
    changes: dict[str, Callable[[], object]] = {
        "quota": lambda: requests_to(controller).alter_client_quotas([quota]),
        "configs": lambda: requests_to(controller).alter_configs([config]),
        "topic": lambda: requests_to(controller).create_topics([topic]),
    }
    with pytest.raises(UnknownServerError, match="too long to be serialized"):
        changes[setting]()
    assert controller.image is before
    assert len(place.batches()) == batches
    requests_to(controller).create_topics([NewTopic(name="after")])
    again = place.restarted(controller)
    assert set(again.image.topics) == {"t", "after"}
