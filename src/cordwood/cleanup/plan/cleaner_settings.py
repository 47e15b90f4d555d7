"""The settings of a broker's cleaner, and the changes that are possible at run time.

Source: org.apache.kafka.storage.internals.log.CleanerConfig, LogCleaner.validateReconfiguration,
kafka.server.KafkaConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.cleanup.plan.request import CleaningOrder
from cordwood.configs.broker_config import BrokerConfig
from cordwood.model.errors import ConfigError

_MIB = 1024 * 1024

_DEFAULTS = BrokerConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerSettings:
    """The effective settings; defaults are those of `BrokerConfig`.

    Sizes are in bytes and for all threads together. `dedupe_buffer_size` bounds the table of keys;
    a log with more keys is indexed in parts. `io_buffer_size` and `io_buffer_load_factor` are
    accepted and described without effect: blocks have a fixed size, and a key table is never more
    than half full. Spark is stopped `spark_idle_ms` (wall-clock time) after its last compaction. An
    uncleanable log is retried after `uncleanable_retry_ms`, and then after twice as long each time,
    up to `uncleanable_retry_max_ms`. Logs that are due are cleaned in `order`. With `verify`, what
    a compaction writes is compared with its source before it is put in place.
    """

    enable: bool = _DEFAULTS.log_cleaner_enable
    threads: int = _DEFAULTS.log_cleaner_threads
    dedupe_buffer_size: int = _DEFAULTS.log_cleaner_dedupe_buffer_size
    io_buffer_size: int = _DEFAULTS.log_cleaner_io_buffer_size
    io_buffer_load_factor: float = _DEFAULTS.log_cleaner_io_buffer_load_factor
    io_max_bytes_per_second: float = _DEFAULTS.log_cleaner_io_max_bytes_per_second
    backoff_ms: int = _DEFAULTS.log_cleaner_backoff_ms
    retention_check_interval_ms: int = _DEFAULTS.log_retention_check_interval_ms
    initial_task_delay_ms: int = _DEFAULTS.log_initial_task_delay_ms
    spark_idle_ms: int = _DEFAULTS.cordwood_cleaner_spark_idle_ms
    uncleanable_retry_ms: int = _DEFAULTS.cordwood_cleaner_uncleanable_retry_ms
    uncleanable_retry_max_ms: int = _DEFAULTS.cordwood_cleaner_uncleanable_retry_max_ms
    order: CleaningOrder = CleaningOrder.RATIO
    verify: bool = False

    @classmethod
    def of(cls, broker: BrokerConfig) -> CleanerSettings:
        """The settings of a broker."""
        return cls(
            enable=broker.log_cleaner_enable,
            threads=broker.log_cleaner_threads,
            dedupe_buffer_size=broker.log_cleaner_dedupe_buffer_size,
            io_buffer_size=broker.log_cleaner_io_buffer_size,
            io_buffer_load_factor=broker.log_cleaner_io_buffer_load_factor,
            io_max_bytes_per_second=broker.log_cleaner_io_max_bytes_per_second,
            backoff_ms=broker.log_cleaner_backoff_ms,
            retention_check_interval_ms=broker.log_retention_check_interval_ms,
            initial_task_delay_ms=broker.log_initial_task_delay_ms,
            spark_idle_ms=broker.cordwood_cleaner_spark_idle_ms,
            uncleanable_retry_ms=broker.cordwood_cleaner_uncleanable_retry_ms,
            uncleanable_retry_max_ms=broker.cordwood_cleaner_uncleanable_retry_max_ms,
            order=CleaningOrder(broker.cordwood_cleaner_order),
            verify=broker.cordwood_cleaner_verify,
        )

    def require_valid(self) -> None:
        """Checks what Kafka checks at the start.

        Raises:
            ConfigError: the table of keys would be too small for a thread.
        """
        if self.enable and self.dedupe_buffer_size // max(1, self.threads) <= _MIB:
            raise ConfigError(
                "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
            )

    def require_reachable(self, new: CleanerSettings) -> None:
        """Checks a change while the cleaner runs.

        Raises:
            ConfigError: Kafka would refuse it.
        """
        if new.threads < 1:
            raise ConfigError("Log cleaner threads should be at least 1")
        if new.threads < self.threads // 2:
            raise ConfigError(
                "Log cleaner threads cannot be reduced to less than half the current value "
                f"{self.threads}"
            )
        if new.threads > self.threads * 2:
            raise ConfigError(
                "Log cleaner threads cannot be increased to more than double the current value "
                f"{self.threads}"
            )
        new.require_valid()
