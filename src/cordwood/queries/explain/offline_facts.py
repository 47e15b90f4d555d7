"""The facts about the logs of log directories, read from their files."""

from __future__ import annotations

from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.report import PartitionReport
from cordwood.cleanup.plan.request import Resolved
from cordwood.configs.broker_config import BrokerConfig
from cordwood.queries.explain.log_facts import Delays, LogFacts, OpenTransaction


def offline_facts(
    report: PartitionReport,
    captured: Captured,
    check: CheckPlan,
    resolved: Resolved,
    broker: BrokerConfig,
) -> LogFacts:
    """The facts about one log; `check` is the plan of the next check of retention.

    The delays are those of a broker with these settings: a stopped log is cleaned when the broker
    runs again, or by `cordwood clean`, which waits for nothing. That it has a trash is taken for
    granted where cordwood.trash.ms is set.
    """
    rate = broker.log_cleaner_io_max_bytes_per_second
    return LogFacts(
        view=captured.view,
        log_dir=report.log_dir,
        check=check,
        origins=resolved.origin,
        transactions=tuple(
            OpenTransaction(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                start_offset=each.current_txn_first_offset,
            )
            for each in sorted(captured.producers, key=lambda each: each.current_txn_first_offset)
            if each.current_txn_first_offset >= 0
        ),
        delays=Delays(
            check_ms=broker.log_retention_check_interval_ms,
            backoff_ms=broker.log_cleaner_backoff_ms,
            file_delete_ms=resolved.config.file_delete_delay_ms,
            trash_ms=resolved.config.cordwood_trash_ms if broker.trash_dir else 0,
        ),
        throttle_bytes=bytes_a_second(rate),
        warnings=(*resolved.warnings, *captured.warnings),
    )


def bytes_a_second(rate: float) -> int | None:
    """The limit of log.cleaner.io.max.bytes.per.second; None where it is the default, no limit."""
    return int(rate) if rate < 1 << 62 else None
