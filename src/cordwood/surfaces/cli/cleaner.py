"""`cordwood cleaner`: what a running broker's cleaner does, and why."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from cordwood.model.errors import ConfigError, CordwoodError
from cordwood.surfaces.cli.running_broker import (
    BootstrapServerOption,
    LogDirOption,
    UrlOption,
    find_broker,
)
from cordwood.surfaces.cli.values import format_bytes, format_duration

EPILOG = """\b
Examples:
  cordwood cleaner --log-dir /tmp/logs
  cordwood cleaner --log-dir /tmp/logs --topic 'orders*'
  cordwood cleaner --bootstrap-server localhost:9092 --json
  cordwood cleaner --url http://127.0.0.1:9465

\b
Exit codes: 0 shown; 1 no broker runs there; 2 usage."""

_FAILED, _USAGE = 1, 2
_RUNS_SHOWN = 10

Value = dict[str, Any]


def cleaner_command(
    status: Annotated[  # what it does without, too
        bool, typer.Option("--status", help="Show how it does; so without any option.")
    ] = True,
    topic: Annotated[
        str, typer.Option(metavar="GLOB", help="Only partitions of these topics.")
    ] = "*",
    log_dir: LogDirOption = None,
    bootstrap_server: BootstrapServerOption = None,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all there is, as JSON.")] = False,
) -> None:
    """Shows the cleaner of a running broker: engine, compacted partitions, last runs."""
    try:
        broker = find_broker(log_dir=log_dir, bootstrap_server=bootstrap_server, url=url)
        answer = _only(broker.ask("/cleaner"), topic)
    except ConfigError as error:
        typer.echo(f"cordwood cleaner: {error}", err=True)
        raise typer.Exit(_USAGE) from error
    except (CordwoodError, OSError) as error:
        typer.echo(f"cordwood cleaner: {error}", err=True)
        raise typer.Exit(_FAILED) from error
    if as_json:
        typer.echo(json.dumps(answer | {"broker": broker.identity.to_json()}))
    else:
        typer.echo(broker.line)
        _show(answer, Console(highlight=False, markup=False, emoji=False))


def _only(answer: Value, glob: str) -> Value:
    """Leaves out partitions of other topics."""

    def is_meant(partition: str) -> bool:
        return fnmatchcase(partition.rpartition("-")[0], glob)

    return answer | {
        "partitions": [p for p in answer["partitions"] if fnmatchcase(p["topic"], glob)],
        "order": [name for name in answer["order"] if is_meant(name)],
        "last_runs": [run for run in answer["last_runs"] if is_meant(run["partition"])],
    }


def _show(answer: Value, out: Console) -> None:
    out.print(_cleaner_line(answer))
    out.print(_engine_line(answer["engine"]))
    if not answer["partitions"]:
        out.print("No compacted partitions.")
        return
    out.print(_partitions(answer))
    if answer["order"]:
        out.print(f"Next: {', '.join(answer['order'])}")
    if answer["last_runs"]:
        out.print(_runs(answer))


def _cleaner_line(answer: Value) -> str:
    if not answer["enabled"]:
        return "Cleaner: off (log.cleaner.enable=false)"
    threads = answer["threads"]
    alive = sum(thread["alive"] for thread in threads)
    failed = [thread["name"] for thread in threads if thread["failed"]]
    line = f"Cleaner: {alive} of {len(threads)} threads run"
    return f"{line}; ended by an error: {', '.join(failed)}" if failed else line


def _engine_line(engine: Value) -> str:
    line = f"Engine:  {engine.get('state')}"
    if engine.get("reason"):
        line += f": {engine['reason']}"
    if engine.get("retry_in_s"):
        line += f"; it may be tried again in {engine['retry_in_s']:.0f} s"
    return line


def _table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1)
    )
    for name in columns:
        if name in numbers:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    return table


def _partitions(answer: Value) -> Table:
    table = _table(
        "Compacted partitions",
        "partition",
        "state",
        "dirty",
        "ratio",
        "cleaned",
        "why",
        numbers=("dirty", "ratio", "cleaned"),
    )
    for each in answer["partitions"]:
        dirty = each.get("dirty_bytes")
        table.add_row(
            f"{each['topic']}-{each['partition']}",
            "due" if each["due"] else each["state"],
            "" if dirty is None else format_bytes(dirty),
            f"{each.get('cleanable_ratio', 0.0):.2f}",
            _ago(each["last_cleaned_ms"], answer["now_ms"]),
            _why(each),
        )
    return table


def _why(partition: Value) -> str:
    """The reason, and where the cleaning failed that too."""
    reason, mark = partition["reason"], partition["uncleanable"]
    if mark is None or mark["reason"] in reason:
        return str(reason)
    return f"{reason}; {mark['stage']} failed {mark['attempts']} times: {mark['reason']}"


def _runs(answer: Value) -> Table:
    table = _table(
        "Last runs",
        "began",
        "partition",
        "outcome",
        "took",
        "read",
        "written",
        numbers=("began", "took", "read", "written"),
    )
    for run in answer["last_runs"][:_RUNS_SHOWN]:
        error = run["error"]
        table.add_row(
            _ago(run["started_ms"], answer["now_ms"]),
            run["partition"],
            f"{run['outcome']}: {error}" if error else run["outcome"],
            f"{run['elapsed_s']:.1f}s",
            _size(run.get("bytes_read")),
            _size(run.get("bytes_written")),
        )
    return table


def _size(count: int | None) -> str:
    return "" if count is None else format_bytes(count)


def _ago(then_ms: int | None, now_ms: int) -> str:
    if then_ms is None:
        return ""
    return f"{format_duration(max(0, now_ms - then_ms) // 1000 * 1000)} ago"
