"""`cordwood cleaner`: shows the state of a running broker's cleaner and the reasons for it."""

from __future__ import annotations

from typing import Annotated

import typer

from cordwood.cleanup.engine.engine_status import EngineStatus
from cordwood.cleanup.schedule.cleaner_answer import (
    BacklogStatus,
    CleanerStatus,
    LogStatus,
    OpenTransactionStatus,
    RunStatus,
)
from cordwood.cleanup.schedule.cleaner_backlog import Growth
from cordwood.queries.brokers import Asked, BrokerQuestion, find_brokers
from cordwood.queries.cleaner import merged, of_topics
from cordwood.surfaces.cli.command import (
    JsonOption,
    PlaceOptions,
    command,
    print_brokers,
    print_document,
)
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import counted, format_bytes, format_duration

EPILOG = """\b
Examples:
  cordwood cleaner --log-dir /tmp/logs
  cordwood cleaner --log-dir /tmp/logs --topic 'orders*'
  cordwood cleaner --bootstrap-server localhost:9092 --json
  cordwood cleaner --url http://127.0.0.1:9465

\b
Exit codes: 0 shown; 1 no broker runs there; 2 usage."""

_RUNS_SHOWN = 10
#: What is said of each order.
_ORDERS = {"ratio": "", "freed": " (by what is freed for each byte that is read)"}
#: How the reason begins where the last stable offset is the limit.
_LAST_STABLE = "the last stable offset is"


@command("cleaner")
def cleaner_command(
    status: Annotated[  # the default
        bool,
        typer.Option("--status", show_default=False, help="Show the status; the default."),
    ] = True,
    topic: Annotated[
        str, typer.Option(metavar="GLOB", help="Only partitions of these topics.")
    ] = "*",
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Shows the cleaner of each running broker: engine, compacted partitions, last runs."""
    brokers = find_brokers(place)
    print_brokers(brokers, as_json=True)
    asked = [
        Asked(each.broker, of_topics(each.answer, topic))
        for each in brokers.ask(BrokerQuestion(path="/cleaner", answer=CleanerStatus))
    ]
    if as_json:
        print_document(merged(asked))
        return
    for broker, each in zip(brokers.brokers, asked, strict=True):
        print_text(broker.line)
        _show(each.answer)


def _show(status: CleanerStatus) -> None:
    now_ms = status.now_ms
    print_text(_cleaner_line(status))
    print_text(_engine_line(status.engine))
    for hold in status.holds.holds:
        print_text(f"Held:    {hold.target} by {hold.id}: {hold.reason}")
    for text in status.holds.unreadable.values():
        print_text(f"Held:    a whole log directory, as its holds cannot be read: {text}")
    if not status.partitions:
        print_text("No compacted partitions.")
        return
    rows = [_partition(each, now_ms) for each in status.partitions]
    print_table("Compacted partitions", _PARTITIONS, rows)
    if status.order:
        print_text(f"Next: {', '.join(status.order)}{_ORDERS[status.order_by]}")
        print_text(_backlog_line(status.backlog))
    if status.backlog.growth is not None:
        print_text(_behind_line(status.backlog.growth, now_ms))
    if status.last_runs:
        runs = [_run(each, now_ms) for each in status.last_runs[:_RUNS_SHOWN]]
        print_table("Last runs", _RUNS, runs)


def _cleaner_line(status: CleanerStatus) -> str:
    if not status.enabled:
        return "Cleaner: off (log.cleaner.enable=false)"
    alive = sum(thread.alive for thread in status.threads)
    failed = [thread.name for thread in status.threads if thread.failed]
    line = f"Cleaner: {alive} of {len(status.threads)} threads run"
    return f"{line}; ended by an error: {', '.join(failed)}" if failed else line


def _backlog_line(backlog: BacklogStatus) -> str:
    """The line about due cleanings of all topics."""
    line = f"Due: {counted(backlog.logs, 'log')}, {format_bytes(backlog.bytes_to_read)} to read"
    if backlog.bytes_freed is not None:
        line += f", about {format_bytes(backlog.bytes_freed)} to be freed"
    if backlog.seconds_left is not None:
        left = format_duration(round(backlog.seconds_left) * 1000)
        line += f", {left} left at {format_bytes(backlog.bytes_per_s or 0)}/s"
    return line


def _behind_line(growth: Growth, now_ms: int) -> str:
    return (
        "Behind: records arrive faster than they are cleaned: the dirty bytes of what is due were "
        f"{format_bytes(growth.bytes_then)} {_ago(growth.since_ms, now_ms)}, and are "
        f"{format_bytes(growth.bytes_now)}"
    )


def _engine_line(engine: EngineStatus) -> str:
    line = f"Engine:  {engine.state}"
    if engine.reason:
        line += f": {engine.reason}"
    if engine.retry_in_s:
        line += f"; it may be tried again in {engine.retry_in_s:.0f} s"
    return line


_PARTITIONS = (
    Column("partition"),
    Column("state"),
    Column("dirty", is_number=True),
    Column("ratio", is_number=True),
    Column("cleaned", is_number=True),
    Column("why", is_prose=True),
)
_RUNS = (
    Column("partition"),
    Column("began", is_number=True),
    Column("outcome", is_prose=True),
    Column("took", is_number=True),
    Column("read", is_number=True),
    Column("written", is_number=True),
)


def _partition(log: LogStatus, now_ms: int) -> list[str]:
    return [
        log.name,
        "due" if log.due else log.state,
        _size(log.dirty_bytes),
        f"{log.cleanable_ratio:.2f}",
        _ago(log.last_cleaned_ms, now_ms),
        _why(log, now_ms),
    ]


def _why(log: LogStatus, now_ms: int) -> str:
    """The reason, with the transaction that is in the way, and why the cleaning failed."""
    reason, mark = log.reason, log.uncleanable
    if log.open_transactions and reason.startswith(_LAST_STABLE):
        limit, _, _ = reason.partition(": ")
        reason = f"{limit}: {_open_since(log.open_transactions[0], now_ms)}"
    if mark is None or mark.reason in reason:
        return reason
    return f"{reason}; {mark.stage} failed {mark.attempts} times: {mark.reason}"


def _open_since(first: OpenTransactionStatus, now_ms: int) -> str:
    transactional_id = first.transactional_id
    named = "no coordinator here knows it" if transactional_id is None else f"{transactional_id!r}"
    return (
        f"the transaction of producer {first.producer_id} ({named}) is open; it began "
        f"{_ago(first.started_ms, now_ms)}"
    )


def _run(run: RunStatus, now_ms: int) -> list[str]:
    return [
        run.partition,
        _ago(run.started_ms, now_ms),
        f"{run.outcome}: {run.error}" if run.error else run.outcome,
        f"{run.elapsed_s:.1f}s",
        _size(run.bytes_read),
        _size(run.bytes_written),
    ]


def _size(count: int | None) -> str:
    return "" if count is None else format_bytes(count)


def _ago(then_ms: int | None, now_ms: int) -> str:
    if then_ms is None:
        return ""
    return f"{format_duration(max(0, now_ms - then_ms) // 1000 * 1000)} ago"
