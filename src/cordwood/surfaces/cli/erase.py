"""`cordwood erase`: removes records from the logs of a stopped broker, and proves it."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cordwood.cleanup.erasure.criteria import (
    SALT_BYTES,
    Criteria,
    Suppressions,
    hash_of_key,
    parse_target,
    targets_of,
)
from cordwood.cleanup.erasure.ledger import read_ledger
from cordwood.cleanup.erasure.report import (
    ErasedBeside,
    ErasedPartition,
    ReportStatus,
    SealedReport,
    build_report,
    read_signing_key,
    sealed,
)
from cordwood.cleanup.erasure.request import EraseRequest, Erasure
from cordwood.model.clock import SystemClock
from cordwood.model.errors import ConfigError, DirectoryInUseError
from cordwood.model.extras import NATIVE, require_extra
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.brokers import AddressedBroker, Place
from cordwood.queries.settings import SettingOptions, Settings, node_ids_of, read_settings
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.clean_progress import CleanProgress, columns
from cordwood.surfaces.cli.command import (
    FAILED,
    IN_USE,
    JsonOption,
    PlaceOptions,
    addressed_broker,
    command,
    print_document,
)
from cordwood.surfaces.cli.erase_running import erase_running
from cordwood.surfaces.cli.failure import fail
from cordwood.surfaces.cli.places import require_writable
from cordwood.surfaces.cli.screen import Screen
from cordwood.surfaces.cli.setting_options import OptionalLogDirsArgument, ServerPropertiesOption
from cordwood.surfaces.cli.stopping import STOPPING
from cordwood.surfaces.cli.tables import Column, print_table, print_text
from cordwood.surfaces.cli.user import user_name
from cordwood.surfaces.cli.values import counted, format_bytes, parse_path, parse_size, parse_time

_STOPPED: Final = {
    True: "nothing was changed",
    False: "the next run completes what was begun; a running broker continues",
}
"""What a signal leaves behind, by whether it is a dry run."""

EPILOG = """\b
Examples:
  cordwood erase /var/lib/kafka/data --topic orders --key user-4711 --dry-run
  cordwood erase /data1 /data2 --topic orders --key-file keys.txt \\
      --reason 'request 93' --report erasure.json --signing-key key.pem
  cordwood erase /data --topic orders:3 --where "value_text LIKE '%4711%'"
  cordwood erase --bootstrap-server localhost:9092 --topic orders --key-file keys.txt
  cordwood erase /restored --from-ledger /data/cordwood-erasures.jsonl
  cordwood verify --erasure erasure.json /data

\b
Exit codes: 0 done or nothing to do; 1 something failed (the rest is done);
2 usage; 3 a directory is in use."""


@command("erase", audit=True)
def erase_command(
    context: typer.Context,
    log_dirs: OptionalLogDirsArgument = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC[:PARTITION]", help="Where to erase; a glob is allowed."
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Erase in all topics, as --topic '*'.")
    ] = False,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Erase the records with this key (UTF-8)."),
    ] = None,
    key_hex: Annotated[
        list[str] | None, typer.Option("--key-hex", metavar="HEX", help="A key in hexadecimal.")
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="FILE", help="Keys, one a line; - is stdin."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Erase the records for which Spark finds this true."),
    ] = None,
    from_ledger: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="FILE", help="Apply earlier erasures again."),
    ] = None,
    reason: Annotated[str, typer.Option(metavar="REASON", help="For the report.")] = "",
    operator: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For the report.  [default: the user's name]"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(parser=parse_path, metavar="FILE", help="Write the report here.")
    ] = None,
    signing_key: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="FILE", help="Ed25519 key (PEM) that signs it."),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            parser=parse_path,
            metavar="FILE",
            help="Note the erasure here.  [default: cordwood-erasures.jsonl in each LOG_DIR]",
        ),
    ] = None,
    trash: Annotated[
        Path | None,
        typer.Option(parser=parse_path, metavar="DIR", help="Erase in this trash, too."),
    ] = None,
    also: Annotated[
        list[Path] | None,
        typer.Option(parser=parse_path, metavar="DIR", help="Erase in these copies, too."),
    ] = None,
    server_properties: ServerPropertiesOption = None,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="The report's time: ms or ISO 8601.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Search and print, write nothing.")
    ] = False,
    max_extra_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Extra disk space a rewrite may take.")
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark master.")] = "local[*]",
    *,
    place: PlaceOptions,
    as_json: JsonOption = False,
) -> None:
    """Erase records by key or by predicate, from stopped log directories or in a running broker.

    LOG_DIR is an entry of a stopped broker's log.dirs, or one partition's directory in it. A
    running Cordwood broker is given by --log-dir, --bootstrap-server or --url, and does the work.

    Every segment that has such a record is rewritten without it, whatever the topic's cleanup
    policy is; all other records stay as they are. The report proves it without holding a key.
    """
    STOPPING.command(
        "cordwood erase",
        note=_STOPPED[dry_run],
        ends_processes=True,
    )
    screen = context.with_resource(Screen())
    topics = [*(topic or ()), *(["*"] if all_topics else ())]
    if from_ledger is not None and (topics or key or key_hex or key_file or where):
        raise ConfigError("--from-ledger has its own topics, keys and expressions")
    broker = _broker_of(
        log_dirs,
        place,
        {"--from-ledger": from_ledger, "--ledger": ledger, "--trash": trash, "--also": also}
        | {"--server-properties": server_properties, "--now": now},
    )
    suppressions = () if from_ledger is None else (read_ledger(from_ledger),)
    signer = None if signing_key is None else read_signing_key(signing_key)
    _require_place("--report", report, is_new=True)
    _require_place("--ledger", None if dry_run else ledger)
    keys = _Keys(key or (), key_hex or (), key_file)
    settings = _settings_of(log_dirs or [], server_properties)
    request = EraseRequest(
        log_dirs=tuple(log_dirs or ()),
        targets=tuple(_targets(topics, suppressions)),
        criteria=_criteria(keys, where, suppressions),
        suppressions=suppressions,
        resolve=(lambda _: None) if settings is None else settings.resolve,
        elsewhere=_elsewhere_of(settings, log_dirs or []),
        now_ms=SystemClock().now_ms() if now is None else parse_time(now, option="--now"),
        id=f"erasure-{secrets.token_hex(6)}",
        salt=secrets.token_bytes(SALT_BYTES),
        ledger_salt=secrets.token_bytes(SALT_BYTES),
        reason=reason,
        operator=operator if operator is not None else user_name(),
        trash=trash,
        also=tuple(also or ()),
        ledger=ledger,
        dry_run=dry_run,
        max_extra_bytes=_size_of(max_extra_bytes),
    )
    try:
        result = _erased(request, broker, master, screen, shows_bars=not as_json)
    except DirectoryInUseError as error:
        fail("erase", f"{error} Nothing was changed: stop that process first", IN_USE)
    answer = sealed(result.report, signer)
    if report is not None and answer.status is not ReportStatus.REFUSED:  # what would it prove?
        OS.replace_durably(report, build_report(answer))
    counts = keys.counts(answer.keys, request.salt)
    if as_json:
        print_document(answer)
    else:
        _show(answer, report, screen, counts, dry_run=dry_run)
    _end(result, counts, screen)


def _end(result: Erasure, counts: list[tuple[str, int]], screen: Screen) -> None:
    """Shows the warnings, and exits with 1 if a part failed or a key has none.

    Raises:
        Exit: that is so.
    """
    missed = [name for name, count in counts if not count]
    if result.report.status is ReportStatus.REFUSED:  # it was not searched to an end
        missed = []
    warnings = [f"{name}: no record has this key" for name in missed[:_NAMED_MAX]]
    if len(missed) > _NAMED_MAX:
        warnings.append(f"no record has {len(missed) - _NAMED_MAX:,} other keys either")
    for warning in [*result.warnings, *warnings]:
        screen.line(f"warning: {warning}", style="yellow")
    if result.failed or missed:
        raise typer.Exit(FAILED)


def _broker_of(
    log_dirs: list[Path] | None, place: Place, of_directories: dict[str, Any]
) -> AddressedBroker | None:
    """The running broker that is addressed; None where stopped directories are given.

    Raises:
        ConfigError: both are, or an option that is of directories.
        CordwoodError: no broker runs there.
    """
    if log_dirs:
        if place.is_given:
            raise ConfigError("give LOG_DIR of a stopped broker, or a running one, not both")
        return None
    for name, value in of_directories.items():
        if value:
            raise ConfigError(f"{name} needs LOG_DIR of a stopped broker")
    return addressed_broker(place, or_directory=True)


def _require_place(option: str, path: Path | None, *, is_new: bool = False) -> None:
    """Requires that a file can be written where it is needed when the records are gone.

    Raises:
        ConfigError: it cannot; or it is there and has to be new.
    """
    if path is None:
        return
    if is_new and OS.exists(path) and not OS.is_directory(path):
        raise ConfigError(
            f"{option} {path}: there is a file, which may prove an earlier erasure: name another"
        )
    require_writable(option, path)


def _settings_of(log_dirs: list[Path], server_properties: Path | None) -> Settings | None:
    """The settings of topics; those of a running broker are its own."""
    if not log_dirs:
        return None
    options = SettingOptions(log_dirs=log_dirs, server_properties=server_properties, defaults=True)
    return read_settings(options)


def _elsewhere_of(
    settings: Settings | None, log_dirs: list[Path]
) -> Callable[[TopicPartition], Sequence[int]]:
    """The brokers that have a replica which is in none of the directories."""
    here = node_ids_of(log_dirs)
    if settings is None or not here:
        return lambda _: ()
    replicas = settings.replicas
    return lambda partition: [node for node in replicas(partition) if node not in here]


def _erased(
    request: EraseRequest,
    broker: AddressedBroker | None,
    master: str,
    screen: Screen,
    *,
    shows_bars: bool,
) -> Erasure:
    with ExitStack() as stack:
        display = CleanProgress(None)
        if shows_bars and screen.is_terminal:
            display = CleanProgress(stack.enter_context(screen.bars(*columns())))
        if broker is not None:
            return erase_running(request, broker, display)
        require_extra(NATIVE, what="cordwood erase")
        # Both load compiled code, which --help works without.
        from cordwood.cleanup.erasure.erase import erase  # noqa: PLC0415
        from cordwood.surfaces.cli.erase_backend import CommandBackend  # noqa: PLC0415

        backend = stack.enter_context(closing(CommandBackend(request, master, display)))
        result = erase(request, backend, listener=display)
        display.finish()
    return result


def _targets(topics: Any, suppressions: tuple[Suppressions, ...]) -> list[Any]:
    if suppressions:
        return list(targets_of(suppressions))
    if not topics:
        raise ConfigError("name at least one --topic, or --all-topics")
    try:
        return list(dict.fromkeys(parse_target(topic) for topic in topics))
    except ValueError as error:
        raise ConfigError(f"--topic {error}") from None


class _Keys:
    """The keys of a command line; each has the option or the line that gave it, not itself."""

    def __init__(self, keys: Sequence[str], keys_hex: Sequence[str], key_file: Path | None) -> None:
        """Takes the options.

        Raises:
            ConfigError: one is not hexadecimal, or the file has none or cannot be read.
        """
        self._named: dict[bytes, str] = {}
        for number, key in enumerate(keys, 1):
            name = "--key" if len(keys) == 1 else f"--key {number}"
            self._named.setdefault(key.encode("utf-8", "surrogateescape"), name)
        for number, text in enumerate(keys_hex, 1):
            name = "--key-hex" if len(keys_hex) == 1 else f"--key-hex {number}"
            try:
                self._named.setdefault(bytes.fromhex(text), name)
            except ValueError:
                raise ConfigError(f"--key-hex {text}: not hexadecimal") from None
        if key_file is not None:
            for line, key_of_line in _lines_of(key_file):
                self._named.setdefault(key_of_line, f"{key_file}, line {line}")

    @property
    def all(self) -> frozenset[bytes]:
        """The keys."""
        return frozenset(self._named)

    def counts(self, by_hash: Mapping[str, int], salt: bytes) -> list[tuple[str, int]]:
        """The number of records found for each key that a report counts, in the order given."""
        hashes = [(name, hash_of_key(key, salt)) for key, name in self._named.items()]
        return [(name, by_hash[each]) for name, each in hashes if each in by_hash]


def _criteria(keys: _Keys, where: str | None, suppressions: tuple[Suppressions, ...]) -> Criteria:
    if suppressions:
        return Criteria()
    if bool(keys.all) == (where is not None):
        raise ConfigError(
            "give the records to erase either by keys (--key, --key-hex, --key-file) or by --where"
        )
    return Criteria(keys=keys.all, where=where)


def _lines_of(path: Path) -> list[tuple[int, bytes]]:
    """The keys of a file, or of standard input as `-`, with the numbers of their lines."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else OS.read_bytes(path)
    except OSError as error:
        raise ConfigError(f"--key-file {path}: cannot be read: {error.strerror}") from error
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    keys = [(number, line) for number, line in enumerate(lines, 1) if line]
    if not keys:
        raise ConfigError(f"--key-file {path}: has no key")
    return keys


def _size_of(text: str | None) -> int | None:
    return None if text is None else parse_size(text, option="--max-extra-bytes")


_NAMED_MAX = 20
_KEY_COLUMNS = (Column("key"), Column("records", is_number=True))
_ERASED = "erased and searched for again"
_COLUMNS = (
    Column("where"),
    *(Column(title, is_number=True) for title in ("records", "erased", "before", "after")),
)


def _row_of_log(each: ErasedPartition) -> list[str]:
    after = "" if each.bytes_after is None else format_bytes(each.bytes_after)
    erased, before = f"{each.erased:,}", format_bytes(each.bytes_before)
    return [each.partition, f"{each.records_before:,}", erased, before, after]


def _row_of_file(each: ErasedBeside) -> list[str]:
    after = "" if each.after is None else format_bytes(each.after.size)
    return [each.path, "", f"{each.erased:,}", format_bytes(each.before.size), after]


def _show(
    report: SealedReport,
    path: Path | None,
    screen: Screen,
    counts: list[tuple[str, int]],
    *,
    dry_run: bool,
) -> None:
    """The tables of what was done on standard output; what failed and why on the screen."""
    failed = report.failed
    logs = [each for each in report.partitions if each.directory not in failed]
    files = [each for each in report.beside if each.path not in failed]
    rows = [*map(_row_of_log, logs), *map(_row_of_file, files)]
    if rows:
        print_table("Would be erased" if dry_run else "Erased", _COLUMNS, rows)
    for path_removed in report.removed:
        print_text(f"{'would be removed' if dry_run else 'removed'}: {path_removed}")
    for name, reason in failed.items():
        screen.line(f"{name}: failed: {reason}", style="red")
    if report.status is ReportStatus.REFUSED:
        print_text("refused: nothing was erased, and nothing is noted")
        return
    if 1 < len(counts) <= _NAMED_MAX:
        print_table("Keys", _KEY_COLUMNS, [[name, f"{found:,}"] for name, found in counts])
    count = sum(each.erased for each in logs) + sum(each.erased for each in files)
    print_text(f"{counted(count, 'record')} {'would be erased' if dry_run else _ERASED}")
    if path is not None:
        signer = report.signature.public_key
        signed = "unsigned" if signer is None else f"signed by {signer}"
        print_text(f"report {report.id}: {path}, {signed}")
