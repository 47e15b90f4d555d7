"""The effective settings of one broker for logs and their cleanup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.configs.table import LOG_BROKER_SETTINGS
from cordwood.configs.value import LONG_MAX, Value

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The effective settings of one broker for logs and their cleanup; the defaults are Kafka's.

    Times are in ms unless their name says minutes, sizes in bytes. `node_id` is -1 when unknown.

    Source: kafka.server.KafkaConfig and CleanerConfig, Kafka 4.3.
    """

    node_id: int = -1
    process_roles: tuple[str, ...] = ()
    controller_quorum_voters: tuple[str, ...] = ()
    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)  # noqa: S108
    metadata_log_dir: str | None = None
    producer_id_expiration_ms: int = 24 * _HOUR_MS
    producer_id_expiration_check_interval_ms: int = 10 * _MINUTE_MS
    transactional_id_expiration_ms: int = 168 * _HOUR_MS
    log_retention_check_interval_ms: int = 5 * _MINUTE_MS
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = _MINUTE_MS
    log_flush_start_offset_checkpoint_interval_ms: int = _MINUTE_MS
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    log_initial_task_delay_ms: int = 30_000
    log_segment_delete_delay_ms: int = _MINUTE_MS
    log_cleaner_enable: bool = True
    log_cleaner_threads: int = 1
    log_cleaner_dedupe_buffer_size: int = 128 * _MIB
    log_cleaner_io_buffer_size: int = 512 * 1024
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    log_cleaner_backoff_ms: int = 15_000
    num_recovery_threads_per_data_dir: int = 2
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS
    remote_log_storage_system_enable: bool = False
    cordwood_log_dir_retention_bytes: int = -1
    cordwood_log_dir_free_bytes_min: int = -1
    cordwood_cleaner_order: str = "ratio"
    cordwood_trash_dir: str | None = None

    @property
    def metadata_dir(self) -> str:
        """The directory that holds the metadata log."""
        return self.log_dirs[0] if self.metadata_log_dir is None else self.metadata_log_dir

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> BrokerConfig:
        """The config with these values of broker settings, by Kafka's names.

        log.dir is used without log.dirs, and broker.id without node.id.
        """
        fields = {
            name.replace(".", "_"): value
            for name, value in values.items()
            if name.replace(".", "_") in cls.__dataclass_fields__
        }
        for name, older in (("log.dirs", "log.dir"), ("node.id", "broker.id")):
            if name not in values and older in values:
                fields[name.replace(".", "_")] = values[older]
        return cls(**fields)  # type: ignore[arg-type]


assert not {*BrokerConfig.__dataclass_fields__} - {
    name.replace(".", "_") for name in LOG_BROKER_SETTINGS
}, "a field without a setting of that name would never be given a value"
