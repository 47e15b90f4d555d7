"""The effective settings of one broker: typed values by Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Generic, TypeVar, overload

from cordwood.configs.table import LOG_BROKER_SETTINGS, broker_settings
from cordwood.configs.value import Value
from cordwood.model.errors import ConfigError

T = TypeVar("T")


class _Of(Generic[T]):
    """Descriptor of a setting's value: its attribute's name with dots for underscores."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.replace("_", ".")

    @overload
    def __get__(self, config: None, owner: type) -> _Of[T]: ...
    @overload
    def __get__(self, config: BrokerConfig, owner: type) -> T: ...
    def __get__(self, config: BrokerConfig | None, owner: type) -> _Of[T] | T:
        if config is None:
            return self
        value = config.value(self.name)
        assert isinstance(value, self.kind), self.name
        return value


class BrokerConfig:
    """Typed values of a broker's settings; those that `all` lacks have Kafka's defaults.

    The attributes are the settings used most; times are in ms unless their name says otherwise,
    sizes in bytes.

    Source: kafka.server.KafkaConfig, Kafka 4.3.
    """

    __slots__ = ("all",)

    def __init__(self, values: Mapping[str, Value | None] | None = None) -> None:
        self.all = values or {}

    def value(self, name: str) -> Value | None:
        """The value of `name`, None if it is unset."""
        if name in self.all:
            return self.all[name]
        return (LOG_BROKER_SETTINGS.get(name) or broker_settings()[name]).default

    def integer(self, name: str) -> int:
        """The whole number of `name`, which has a default."""
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def integer_or_none(self, name: str) -> int | None:
        """The whole number of `name`, None if it is unset."""
        return None if self.value(name) is None else self.integer(name)

    def real(self, name: str) -> float:
        """The number of `name`."""
        value = self.value(name)
        assert isinstance(value, int | float), name
        return float(value)

    def flag(self, name: str) -> bool:
        """Whether `name` is true."""
        value = self.value(name)
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str | None:
        """The text of `name`, None if it is unset."""
        value = self.value(name)
        assert value is None or isinstance(value, str), name
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """The elements of `name`, none if it is unset."""
        value = self.value(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()

    auto_create_topics_enable = _Of(bool)
    connections_max_idle_ms = _Of(int)
    cordwood_cleaner_order = _Of(str)
    cordwood_cleaner_spark_idle_ms = _Of(int)
    cordwood_cleaner_uncleanable_retry_max_ms = _Of(int)
    cordwood_cleaner_uncleanable_retry_ms = _Of(int)
    cordwood_cleaner_verify = _Of(bool)
    cordwood_log_dir_free_bytes_min = _Of(int)
    cordwood_log_dir_retention_bytes = _Of(int)
    default_replication_factor = _Of(int)
    delete_topic_enable = _Of(bool)
    fetch_max_bytes = _Of(int)
    log_cleaner_backoff_ms = _Of(int)
    log_cleaner_dedupe_buffer_size = _Of(int)
    log_cleaner_enable = _Of(bool)
    log_cleaner_io_buffer_load_factor = _Of(float)
    log_cleaner_io_buffer_size = _Of(int)
    log_cleaner_io_max_bytes_per_second = _Of(float)
    log_cleaner_threads = _Of(int)
    log_flush_offset_checkpoint_interval_ms = _Of(int)
    log_flush_scheduler_interval_ms = _Of(int)
    log_flush_start_offset_checkpoint_interval_ms = _Of(int)
    log_initial_task_delay_ms = _Of(int)
    log_retention_check_interval_ms = _Of(int)
    max_connections = _Of(int)
    max_connections_per_ip = _Of(int)
    max_incremental_fetch_session_cache_slots = _Of(int)
    max_request_partition_size_limit = _Of(int)
    metadata_log_max_record_bytes_between_snapshots = _Of(int)
    metadata_log_max_snapshot_interval_ms = _Of(int)
    metadata_log_segment_bytes = _Of(int)
    metadata_log_segment_ms = _Of(int)
    metadata_max_retention_bytes = _Of(int)
    metadata_max_retention_ms = _Of(int)
    min_insync_replicas = _Of(int)
    num_partitions = _Of(int)
    num_recovery_threads_per_data_dir = _Of(int)
    offset_metadata_max_bytes = _Of(int)
    producer_id_expiration_check_interval_ms = _Of(int)
    producer_id_expiration_ms = _Of(int)
    replica_high_watermark_checkpoint_interval_ms = _Of(int)
    replica_lag_time_max_ms = _Of(int)
    request_timeout_ms = _Of(int)
    socket_request_max_bytes = _Of(int)
    transaction_max_timeout_ms = _Of(int)
    transaction_partition_verification_enable = _Of(bool)
    unstable_api_versions_enable = _Of(bool)

    @property
    def node_id(self) -> int:
        """The number of the node, -1 when unknown."""
        number = self.integer_or_none("node.id")
        return self.integer("broker.id") if number is None else number

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """The directories that hold logs, in the order given."""
        return self.strings("log.dirs") or self.strings("log.dir")

    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The directories that get no new partitions (KIP-1066); all for *."""
        found = self.strings("cordoned.log.dirs")
        return self.log_dirs if "*" in found else found

    @property
    def metadata_log_dir(self) -> str:
        """The directory that holds the metadata log."""
        return self.text("metadata.log.dir") or self.log_dirs[0]

    @property
    def trash_dir(self) -> str | None:
        """The directory that takes what is removed from the logs, None if there is none."""
        return self.text("cordwood.trash.dir")

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
