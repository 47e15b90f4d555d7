"""The effective settings of one broker: typed values by Kafka's names.

`configs.levels` selects one of several given values.

Source: kafka.server.KafkaConfig.extractLogConfigMap, Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import overload

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.levels import broker_name_of, synonyms_of
from cordwood.configs.table import (
    TOPIC_SETTINGS,
    Setting,
    Settings,
    broker_settings,
    dynamic_settings,
)
from cordwood.configs.value import Value
from cordwood.format.java_map import JavaHashMap
from cordwood.model.errors import ConfigError

Texts = Mapping[str, str]
"""Settings as they are written."""


def key_of(name: str) -> Setting | None:
    """The setting `name`, also with a listener's prefix; None if Kafka does not know it."""
    keys = dynamic_settings()
    if name in keys:
        return keys[name]
    return next((keys[each] for each in synonyms_of(name) if each in keys), None)


def parse_texts(texts: Texts, keys: Settings) -> dict[str, Value | None]:
    """The values of all `keys`: those in `texts`, for the others their defaults.

    Raises:
        ConfigError: one that Kafka would refuse, the first in the order of `keys`.
    """
    values = dict(_defaults(keys))
    given = texts.keys() & keys.keys()
    for name in sorted(given, key=_places(keys).__getitem__) if len(given) > 1 else given:
        values[name] = keys[name].parse(texts[name])
    return values


def topic_defaults(values: Mapping[str, Value | None]) -> dict[str, Value]:
    """The values that a broker with these settings gives to topics without their own.

    Topic settings without a broker setting have Kafka's defaults; unset ones are left out.
    """
    found: dict[str, Value] = {}
    for name, setting in TOPIC_SETTINGS.items():
        value: Value | None = None if setting.broker_names else setting.default
        broker = broker_name_of(setting, values)
        if broker is not None:
            value = broker.scaled(values[broker.name])
        if value is not None:
            found[name] = value
    retention_ms = found["retention.ms"]
    assert isinstance(retention_ms, int), retention_ms
    found["retention.ms"] = max(-1, retention_ms)
    return found


def parse_topic(texts: Texts, defaults: Mapping[str, Value]) -> dict[str, Value]:
    """The values of a topic with the settings `texts` of its own, unknown ones left out.

    Raises:
        ConfigError: one that Kafka would refuse.
    """
    values = dict(defaults)
    for name, key in TOPIC_SETTINGS.items():
        if name in texts:
            values[name] = key.parse(texts[name])
    return values


class _Integer:
    """An attribute that is the whole number of the setting called so, with dots for underscores."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.replace("_", ".")

    @overload
    def __get__(self, values: None, owner: type) -> _Integer: ...
    @overload
    def __get__(self, values: BrokerValues, owner: type) -> int: ...
    def __get__(self, values: BrokerValues | None, owner: type) -> _Integer | int:
        return self if values is None else values.integer(self.name)


class _Flag:
    """The same for a setting that is true or false."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.replace("_", ".")

    @overload
    def __get__(self, values: None, owner: type) -> _Flag: ...
    @overload
    def __get__(self, values: BrokerValues, owner: type) -> bool: ...
    def __get__(self, values: BrokerValues | None, owner: type) -> _Flag | bool:
        return self if values is None else values.flag(self.name)


class BrokerValues:
    """Typed values of a broker's settings, all of them, by Kafka's names.

    The attributes are the settings used most; times are in ms unless their name says otherwise,
    sizes in bytes.
    """

    __slots__ = ("all",)

    def __init__(self, values: Mapping[str, Value | None]) -> None:
        self.all = values

    def integer(self, name: str) -> int:
        """The whole number of `name`, which has a default."""
        value = self.all[name]
        assert isinstance(value, int), name
        return value

    def integer_or_none(self, name: str) -> int | None:
        """The whole number of `name`, None if it is unset."""
        return None if self.all[name] is None else self.integer(name)

    def real(self, name: str) -> float:
        """The number of `name`."""
        value = self.all[name]
        assert isinstance(value, int | float), name
        return float(value)

    def flag(self, name: str) -> bool:
        """Whether `name` is true."""
        value = self.all[name]
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str | None:
        """The text of `name`, None if it is unset."""
        value = self.all[name]
        assert value is None or isinstance(value, str), name
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """The elements of `name`, none if it is unset."""
        value = self.all[name]
        assert value is None or isinstance(value, tuple), name
        return value or ()

    @property
    def broker_config(self) -> BrokerConfig:
        """The part that logs and their cleanup go by."""
        return BrokerConfig.from_values(
            {name: value for name, value in self.all.items() if value is not None}
        )

    auto_create_topics_enable = _Flag()
    broker_heartbeat_interval_ms = _Integer()
    broker_session_timeout_ms = _Integer()
    connection_failed_authentication_delay_ms = _Integer()
    connections_max_idle_ms = _Integer()
    controlled_shutdown_enable = _Flag()
    default_replication_factor = _Integer()
    delete_records_purgatory_purge_interval_requests = _Integer()
    delete_topic_enable = _Flag()
    fetch_max_bytes = _Integer()
    fetch_purgatory_purge_interval_requests = _Integer()
    group_consumer_heartbeat_interval_ms = _Integer()
    group_consumer_max_size = _Integer()
    group_consumer_session_timeout_ms = _Integer()
    group_initial_rebalance_delay_ms = _Integer()
    group_max_session_timeout_ms = _Integer()
    group_max_size = _Integer()
    group_min_session_timeout_ms = _Integer()
    leader_imbalance_check_interval_seconds = _Integer()
    log_cleaner_backoff_ms = _Integer()
    log_cleaner_enable = _Flag()
    log_cleaner_threads = _Integer()
    log_flush_offset_checkpoint_interval_ms = _Integer()
    log_flush_scheduler_interval_ms = _Integer()
    log_flush_start_offset_checkpoint_interval_ms = _Integer()
    log_initial_task_delay_ms = _Integer()
    log_retention_check_interval_ms = _Integer()
    max_connection_creation_rate = _Integer()
    max_connections = _Integer()
    max_connections_per_ip = _Integer()
    max_incremental_fetch_session_cache_slots = _Integer()
    max_request_partition_size_limit = _Integer()
    message_max_bytes = _Integer()
    metadata_log_max_record_bytes_between_snapshots = _Integer()
    metadata_log_max_snapshot_interval_ms = _Integer()
    metadata_log_segment_bytes = _Integer()
    metadata_log_segment_ms = _Integer()
    metadata_max_idle_interval_ms = _Integer()
    metadata_max_retention_bytes = _Integer()
    metadata_max_retention_ms = _Integer()
    min_insync_replicas = _Integer()
    num_io_threads = _Integer()
    num_network_threads = _Integer()
    num_partitions = _Integer()
    num_recovery_threads_per_data_dir = _Integer()
    offset_metadata_max_bytes = _Integer()
    offsets_commit_timeout_ms = _Integer()
    offsets_load_buffer_size = _Integer()
    offsets_retention_check_interval_ms = _Integer()
    offsets_retention_minutes = _Integer()
    offsets_topic_compression_codec = _Integer()
    offsets_topic_num_partitions = _Integer()
    offsets_topic_replication_factor = _Integer()
    offsets_topic_segment_bytes = _Integer()
    producer_id_expiration_check_interval_ms = _Integer()
    producer_id_expiration_ms = _Integer()
    producer_purgatory_purge_interval_requests = _Integer()
    queued_max_request_bytes = _Integer()
    queued_max_requests = _Integer()
    replica_high_watermark_checkpoint_interval_ms = _Integer()
    replica_lag_time_max_ms = _Integer()
    request_timeout_ms = _Integer()
    share_coordinator_state_topic_num_partitions = _Integer()
    share_coordinator_state_topic_replication_factor = _Integer()
    socket_listen_backlog_size = _Integer()
    socket_receive_buffer_bytes = _Integer()
    socket_request_max_bytes = _Integer()
    socket_send_buffer_bytes = _Integer()
    transaction_abort_timed_out_transaction_cleanup_interval_ms = _Integer()
    transaction_max_timeout_ms = _Integer()
    transaction_partition_verification_enable = _Flag()
    transaction_remove_expired_transaction_cleanup_interval_ms = _Integer()
    transaction_state_log_load_buffer_size = _Integer()
    transaction_state_log_min_isr = _Integer()
    transaction_state_log_num_partitions = _Integer()
    transaction_state_log_replication_factor = _Integer()
    transaction_state_log_segment_bytes = _Integer()
    transaction_two_phase_commit_enable = _Flag()
    transactional_id_expiration_ms = _Integer()
    unstable_api_versions_enable = _Flag()

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """The limits of connections for addresses with their own limit."""
        return parse_counts(self.text("max.connections.per.ip.overrides") or "")


def parse_counts(text: str) -> dict[str, int]:
    """Numbers by address, from `host:number,host:number`; error texts are Java's.

    Raises:
        ConfigError: an entry is not of that form.

    Source: Integer.parseInt, Java 17.
    """
    counts: dict[str, int] = {}
    for host, number in parse_pairs("max.connections.per.ip.overrides", text).items():
        if not re.fullmatch(r"[+-]?\d{1,10}", number):
            raise ConfigError(f'For input string: "{number}"')
        counts[host] = int(number)
    return counts


def parse_pairs(setting: str, text: str) -> dict[str, str]:
    """The pairs in `name:value,name:value`; the last colon of an entry separates them.

    Raises:
        ConfigError: an entry has no colon; the text is Java's.

    Source: org.apache.kafka.server.util.Csv.parseCsvMap.
    """
    pairs: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = entry.rpartition(":")
        if not colon:
            raise ConfigError(
                f"Error parsing configuration property '{setting}': "
                f"begin 0, end -1, length {len(entry)}"
            )
        pairs[name.strip()] = value.strip()
    return pairs


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    """The names whose values differ, including those in only one of the two."""
    return {
        name
        for name in before.keys() | after.keys()
        if name not in before or name not in after or before[name] != after[name]
    }


def named(names: Iterable[str]) -> str:
    """Names as Java prints a set of them: in brackets, in the order of its hash table."""
    return f"[{', '.join(java_order(names))}]"


def java_order(names: Iterable[str]) -> list[str]:
    """The names in the order in which a java.util.HashMap gives them."""
    table: JavaHashMap[str, None] = JavaHashMap()
    for name in names:
        table.put(name, None)
    return list(table)


def _defaults(keys: Settings) -> Mapping[str, Value | None]:
    return _broker_defaults() if keys is broker_settings() else _defaults_of(keys)


@cache
def _broker_defaults() -> Mapping[str, Value | None]:
    return _defaults_of(broker_settings())


def _defaults_of(keys: Settings) -> Mapping[str, Value | None]:
    return {name: key.default for name, key in keys.items()}


def _places(keys: Settings) -> Mapping[str, int]:
    return {name: place for place, name in enumerate(keys)}
