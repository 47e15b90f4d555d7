"""`cordwood cleaner`: shows the state of a running broker's cleaner and the reasons for it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer

from cordwood.model.documents import to_document
from cordwood.queries.brokers import find_broker
from cordwood.surfaces.cli.command import PlaceOptions, command, print_not_addressed
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.values import format_bytes, format_duration

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

Value = dict[str, Any]


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
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Shows the cleaner of a running broker: engine, compacted partitions, last runs."""
    broker = find_broker(place)
    print_not_addressed(broker)
    answer = _only(broker.document("/cleaner"), topic)
    if as_json:
        typer.echo(json.dumps(answer | {"broker": to_document(broker.identity)}))
    else:
        print_text(broker.line)
        _show(answer)


def _only(answer: Value, glob: str) -> Value:
    """Leaves out partitions of other topics."""

    def is_meant(partition: str) -> bool:
        return fnmatchcase(partition.rpartition("-")[0], glob)

    return answer | {
        "partitions": [p for p in answer["partitions"] if fnmatchcase(p["topic"], glob)],
        "order": [name for name in answer["order"] if is_meant(name)],
        "last_runs": [run for run in answer["last_runs"] if is_meant(run["partition"])],
    }


def _show(answer: Value) -> None:
    print_text(_cleaner_line(answer))
    print_text(_engine_line(answer["engine"]))
    for hold in answer["holds"]["holds"]:
        print_text(f"Held:    {hold['target']} by {hold['id']}: {hold['reason']}")
    for text in answer["holds"]["unreadable"].values():
        print_text(f"Held:    a whole log directory, as its holds cannot be read: {text}")
    if not answer["partitions"]:
        print_text("No compacted partitions.")
        return
    print_table(
        "Compacted partitions",
        _PARTITIONS,
        [_partition(each, answer) for each in answer["partitions"]],
    )
    if answer["order"]:
        print_text(f"Next: {', '.join(answer['order'])}{_ORDERS[answer['order_by']]}")
        print_text(_backlog_line(answer["backlog"]))
    if answer["backlog"]["growth"] is not None:
        print_text(_behind_line(answer["backlog"]["growth"], answer["now_ms"]))
    if answer["last_runs"]:
        runs = answer["last_runs"][:_RUNS_SHOWN]
        print_table("Last runs", _RUNS, [_run(each, answer) for each in runs])


def _cleaner_line(answer: Value) -> str:
    if not answer["enabled"]:
        return "Cleaner: off (log.cleaner.enable=false)"
    threads = answer["threads"]
    alive = sum(thread["alive"] for thread in threads)
    failed = [thread["name"] for thread in threads if thread["failed"]]
    line = f"Cleaner: {alive} of {len(threads)} threads run"
    return f"{line}; ended by an error: {', '.join(failed)}" if failed else line


def _backlog_line(backlog: Value) -> str:
    """The line about due cleanings of all topics."""
    logs = "1 log" if backlog["logs"] == 1 else f"{backlog['logs']} logs"
    line = f"Due: {logs}, {format_bytes(backlog['bytes_to_read'])} to read"
    if backlog["bytes_freed"] is not None:
        line += f", about {format_bytes(backlog['bytes_freed'])} to be freed"
    if backlog["seconds_left"] is not None:
        left = format_duration(round(backlog["seconds_left"]) * 1000)
        line += f", {left} left at {format_bytes(backlog['bytes_per_s'])}/s"
    return line


def _behind_line(growth: Value, now_ms: int) -> str:
    return (
        "Behind: records arrive faster than they are cleaned: the dirty bytes of what is due were "
        f"{format_bytes(growth['bytes_then'])} {_ago(growth['since_ms'], now_ms)}, and are "
        f"{format_bytes(growth['bytes_now'])}"
    )


def _engine_line(engine: Value) -> str:
    line = f"Engine:  {engine.get('state')}"
    if engine.get("reason"):
        line += f": {engine['reason']}"
    if engine.get("retry_in_s"):
        line += f"; it may be tried again in {engine['retry_in_s']:.0f} s"
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


def _partition(each: Value, answer: Value) -> list[str]:
    dirty = each.get("dirty_bytes")
    return [
        f"{each['topic']}-{each['partition']}",
        "due" if each["due"] else each["state"],
        "" if dirty is None else format_bytes(dirty),
        f"{each.get('cleanable_ratio', 0.0):.2f}",
        _ago(each["last_cleaned_ms"], answer["now_ms"]),
        _why(each, answer["now_ms"]),
    ]


def _why(partition: Value, now_ms: int) -> str:
    """The reason, with the transaction that is in the way, and why the cleaning failed."""
    reason, mark = partition["reason"], partition["uncleanable"]
    if partition.get("open_transactions") and reason.startswith(_LAST_STABLE):
        limit, _, _ = reason.partition(": ")
        reason = f"{limit}: {_open_since(partition['open_transactions'][0], now_ms)}"
    if mark is None or mark["reason"] in reason:
        return str(reason)
    return f"{reason}; {mark['stage']} failed {mark['attempts']} times: {mark['reason']}"


def _open_since(first: Value, now_ms: int) -> str:
    transactional_id = first["transactional_id"]
    named = "no coordinator here knows it" if transactional_id is None else f"{transactional_id!r}"
    return (
        f"the transaction of producer {first['producer_id']} ({named}) is open; it began "
        f"{_ago(first['started_ms'], now_ms)}"
    )


def _run(run: Value, answer: Value) -> list[str]:
    error = run["error"]
    return [
        run["partition"],
        _ago(run["started_ms"], answer["now_ms"]),
        f"{run['outcome']}: {error}" if error else run["outcome"],
        f"{run['elapsed_s']:.1f}s",
        _size(run.get("bytes_read")),
        _size(run.get("bytes_written")),
    ]


def _size(count: int | None) -> str:
    return "" if count is None else format_bytes(count)


def _ago(then_ms: int | None, now_ms: int) -> str:
    if then_ms is None:
        return ""
    return f"{format_duration(max(0, now_ms - then_ms) // 1000 * 1000)} ago"
