"""The flags of kafka-dump-log, parsed as Kafka's option parser does.

A flag may be written with one dash or two (with two also shortened, as long as it stays
unambiguous), and its value may follow `=` or come as the next argument.

Source: DumpLogSegments.DumpLogSegmentsOptions; joptsimple.OptionParser.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.model.errors import ConfigError
from cordwood.storage.reading.batches import SIZE_MAX
from cordwood.surfaces.dump.decoders import STRING_DECODER

MESSAGE_BYTES_MAX = 5 * 1024 * 1024

_RECORD_BYTES = "max-decompressed-message-bytes"


class _Arity(enum.Enum):
    FLAG = "flag"
    VALUE = "value"
    OPTIONAL = "optional value"


_OPTIONS: dict[str, tuple[_Arity, str, str]] = {
    "files": (
        _Arity.VALUE,
        "FILE,...",
        (
            "Required: the files to print, divided by commas. Segments (.log), metadata "
            "snapshots (.checkpoint), indexes (.index, .timeindex, .txnindex) and producer "
            "snapshots (.snapshot) are known."
        ),
    ),
    "print-data-log": (
        _Arity.FLAG,
        "",
        "Print keys and payloads too. Set by any decoder.",
    ),
    "deep-iteration": (
        _Arity.FLAG,
        "",
        "Print a line for each record, not only for each batch. Set by --print-data-log.",
    ),
    "skip-record-metadata": (
        _Arity.FLAG,
        "",
        "Print keys and payloads only; control records become empty lines.",
    ),
    "verify-index-only": (
        _Arity.FLAG,
        "",
        "Compare indexes with their log without printing their entries.",
    ),
    "index-sanity-check": (
        _Arity.FLAG,
        "",
        "Only make the check of indexes that a broker makes when it starts.",
    ),
    "max-message-size": (
        _Arity.VALUE,
        "BYTES",
        f"How large a batch may be that an index points at. Default {MESSAGE_BYTES_MAX}.",
    ),
    "max-bytes": (
        _Arity.VALUE,
        "BYTES",
        f"How much of each .log to read. Default {SIZE_MAX}.",
    ),
    _RECORD_BYTES: (
        _Arity.VALUE,
        "BYTES",
        (
            "Cordwood's own: how large a record of a compressed batch may be; a larger one ends "
            f"the file. Default {RECORD_BYTES_MAX}."
        ),
    ),
    "key-decoder-class": (
        _Arity.OPTIONAL,
        "CLASS",
        (
            "One of org.apache.kafka.tools.api.StringDecoder (the default), IntegerDecoder, "
            "LongDecoder, DefaultDecoder (hexadecimal here)."
        ),
    ),
    "value-decoder-class": (_Arity.OPTIONAL, "CLASS", "The same for payloads."),
    "offsets-decoder": (_Arity.FLAG, "", "The log is of __consumer_offsets."),
    "transaction-log-decoder": (_Arity.FLAG, "", "The log is of __transaction_state."),
    "cluster-metadata-decoder": (_Arity.FLAG, "", "The log is of __cluster_metadata."),
    "remote-log-metadata-decoder": (_Arity.FLAG, "", "The log is of __remote_log_metadata."),
    "share-group-state-decoder": (_Arity.FLAG, "", "The log is of __share_group_state."),
    "json": (_Arity.FLAG, "", "Cordwood's own: print a JSON document to a line."),
    "log-level": (_Arity.VALUE, "LEVEL", "Lowest level to log: DEBUG, INFO, WARN, ERROR."),
    "log-format": (_Arity.VALUE, "FORMAT", "How a line of the log looks: text or json."),
    "log-file": (_Arity.VALUE, "FILE", "Log to this file, not to standard error."),
    "help": (_Arity.FLAG, "", "Print this (-h)."),
    "version": (_Arity.FLAG, "", "Print Cordwood's version."),
}

_PRINTING = (
    "print-data-log",
    "offsets-decoder",
    "transaction-log-decoder",
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "value-decoder-class",
    "key-decoder-class",
    "share-group-state-decoder",
)

_EXAMPLES = """Examples:
  Batches of a segment:
    cordwood dump-log --files /data/orders-0/00000000000000000000.log
  Records with keys and payloads, of several segments:
    cordwood dump-log --print-data-log --files \\
      /data/orders-0/00000000000000000000.log,/data/orders-0/00000000000000001211.log
  Committed offsets and groups:
    cordwood dump-log --offsets-decoder --files /data/__consumer_offsets-0/00000000000000000000.log
  Does an index agree with its log? Mismatches are printed to stderr:
    cordwood dump-log --verify-index-only --files /data/orders-0/00000000000000000000.index
  Offsets and payload sizes for another program:
    cordwood dump-log --deep-iteration --json --files FILE | jq 'select(.kind == "record")'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """The parsed options."""

    files: tuple[str, ...]
    given: frozenset[str]
    message_bytes_max: int
    bytes_max: int
    record_bytes_max: int
    key_decoder_class: str
    value_decoder_class: str
    log: tuple[str | None, str | None, str | None] = (None, None, None)

    def has(self, name: str) -> bool:
        """True if that flag was given."""
        return name in self.given

    @property
    def should_print_data(self) -> bool:
        """True if keys and payloads are to be printed."""
        return any(name in self.given for name in _PRINTING)

    @property
    def is_deep(self) -> bool:
        """True if records are to be printed."""
        return "deep-iteration" in self.given or self.should_print_data


def parse_options(arguments: Sequence[str]) -> DumpOptions:
    """The options in `arguments`; other arguments are skipped, as Kafka's tool does.

    Raises:
        ConfigError: a flag is unknown, ambiguous, given twice with values, or its value is missing
            or not a number.
    """
    values: dict[str, str | None] = {}
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        position += 1
        if argument == "--":
            break
        if not argument.startswith("-") or argument == "-":
            continue
        written, equals, value = argument.lstrip("-").partition("=")
        name = (
            "help"
            if argument == "-h"
            else _full_name(written, may_be_short=argument.startswith("--"))
        )
        arity = _OPTIONS[name][0]
        found: str | None = value if equals else None
        if arity is _Arity.FLAG:
            if equals:
                raise ConfigError(f"Option {name} takes no value")
        elif not equals and position < len(arguments):
            following = arguments[position]
            if arity is _Arity.VALUE or not following.startswith("-"):
                found = following
                position += 1
        if arity is _Arity.VALUE and found is None:
            raise ConfigError(f"Option {name} requires an argument")
        if name in values and arity is not _Arity.FLAG:
            raise ConfigError(f"Found multiple arguments for option {name}, but expected only one")
        values[name] = found
    return DumpOptions(
        files=_files(values.get("files") or ""),
        given=frozenset(values),
        message_bytes_max=_number("max-message-size", values, MESSAGE_BYTES_MAX),
        bytes_max=_number("max-bytes", values, SIZE_MAX),
        record_bytes_max=_number(_RECORD_BYTES, values, RECORD_BYTES_MAX, most=RECORD_BYTES_MAX),
        key_decoder_class=values.get("key-decoder-class") or STRING_DECODER,
        value_decoder_class=values.get("value-decoder-class") or STRING_DECODER,
        log=(values.get("log-level"), values.get("log-format"), values.get("log-file")),
    )


def usage() -> str:
    """The text of `--help`."""
    lines = [
        "Usage: cordwood dump-log --files FILE,... [OPTION]...",
        "",
        "Prints segments, indexes and snapshots of Apache Kafka, as kafka-dump-log does.",
        "",
        "Options:",
    ]
    for name, (_, placeholder, text) in _OPTIONS.items():
        left = f"  --{name} {placeholder}".rstrip()
        lines += _wrapped(left, text)
    return "\n".join(lines) + "\n\n" + _EXAMPLES


def _wrapped(left: str, text: str) -> list[str]:
    lines: list[str] = []
    line = left.ljust(31) if len(left) < 31 else left + "\n" + " " * 31
    for word in text.split():
        if len(line.rpartition("\n")[2]) + len(word) > 99:
            lines.append(line.rstrip(" "))
            line = " " * 31
        line += word + " "
    return [*lines, line.rstrip(" ")]


def _full_name(written: str, *, may_be_short: bool) -> str:
    if written in _OPTIONS:
        return written
    matches = [name for name in _OPTIONS if written and may_be_short and name.startswith(written)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ConfigError(f"{written} is not a unique abbreviation: {', '.join(matches)}")
    raise ConfigError(f"{written} is not a recognized option")


def _files(text: str) -> tuple[str, ...]:
    # As String.split does: empty names at the end do not count.
    return tuple(text.rstrip(",").split(",")) if text.rstrip(",") else ()


def _number(name: str, values: dict[str, str | None], default: int, *, most: int = SIZE_MAX) -> int:
    text = values.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        raise ConfigError(f"Cannot parse argument '{text}' of option {name}")
    number = int(text)
    if not 0 <= number <= most:
        raise ConfigError(f"Option {name} must lie between 0 and {most}")
    return number
