from __future__ import annotations

from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.configs import DELETE, SET, Configs
from cordwood.configs.resource import ConfigResource


def test_configs_are_set_and_taken_back(cluster: ClusterClient) -> None:
    Admin(cluster).create_topic("set")
    settings = Configs(cluster)
    settings.alter(ConfigResource.TOPIC, "set", [("segment.ms", SET, "7000")])
    configs = {config.name: config for config in settings.describe(ConfigResource.TOPIC, "set")}
    assert (configs["segment.ms"].value, configs["segment.ms"].source) == (
        "7000",
        "DYNAMIC_TOPIC_CONFIG",
    )
    assert configs["segment.ms"].synonyms[0].value == "7000"
    settings.alter(ConfigResource.TOPIC, "set", [("segment.ms", DELETE, None)])
    configs = {config.name: config for config in settings.describe(ConfigResource.TOPIC, "set")}
    assert configs["segment.ms"].is_default


def test_quotas_are_set_and_taken_back(cluster: ClusterClient) -> None:
    settings = Configs(cluster)
    entity = (("user", "u"), ("client-id", None))
    settings.alter_quotas(entity, {"producer_byte_rate": 1024.0})
    components = [("user", 0, "u"), ("client-id", 1, None)]
    ((found, values),) = settings.describe_quotas(components)
    assert (dict(found), values) == (dict(entity), {"producer_byte_rate": 1024.0})
    settings.alter_quotas(entity, {"producer_byte_rate": None})
    assert settings.describe_quotas(components) == []
