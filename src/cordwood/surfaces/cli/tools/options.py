"""Flags of Kafka's tools, parsed as their option parser does, with its error texts.

A flag may be written with one dash or two, and its value may follow `=` or be the next argument;
arguments that are no flags are skipped.

Source: joptsimple.OptionParser (5.0.4) without abbreviations;
org.apache.kafka.server.util.CommandLineUtils.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.model.errors import CordwoodError

_WIDTH = 99
_INDENT = 40

FLAG, VALUE, OPTIONAL = "flag", "value", "optional"

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1


class OptionError(CordwoodError):
    """Flags that the parser refuses."""


class UsageError(CordwoodError):
    """Flags that do not go together: the text is shown with the tool's usage."""


class Option(NamedTuple):
    """A flag. `kind` determines whether a value follows; `placeholder` is its name in the usage."""

    name: str
    text: str
    placeholder: str = ""
    kind: str = ""
    default: str | None = None

    @property
    def arity(self) -> str:
        """Whether a value follows; if `kind` is unset, a placeholder implies a value."""
        return self.kind or (VALUE if self.placeholder else FLAG)


LOG_OPTIONS = (
    Option("log-level", "Lowest level to log: DEBUG, INFO, WARN, ERROR.", "LEVEL"),
    Option("log-format", "How a line of the log looks: text or json.", "FORMAT"),
    Option("log-file", "Log to this file, not to standard error.", "FILE"),
)
COMMON = (
    Option("json", "Cordwood's own: print a JSON document."),
    *LOG_OPTIONS,
    Option("help", "Print this (-h)."),
    Option("version", "Print Cordwood's version."),
)
BOOTSTRAP = Option("bootstrap-server", "Required: the brokers to begin with.", "HOST:PORT,...")
COMMAND_CONFIG = Option("command-config", "A properties file with settings of the client.", "FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """A tool's flags, and the texts of its `--help`.

    `hint` is shown if no flag is given; if it is empty, `summary` is shown.
    """

    tool: str
    summary: str
    options: Sequence[Option]
    examples: str
    notes: str = ""
    hint: str = ""

    def text(self) -> str:
        """The text of `--help`."""
        summary = textwrap.fill(self.summary, _WIDTH)
        lines = [f"Usage: cordwood {self.tool} [OPTION]...", "", summary, "", "Options:"]
        for option in self.options:
            left = f"  --{option.name}"
            if option.arity == VALUE:
                left += f" {option.placeholder}"
            elif option.arity == OPTIONAL:
                left += f" [{option.placeholder}]"
            words = option.text
            if option.default:
                words += f" Default {option.default}."
            lines += _wrapped(left, words)
        if self.notes:
            lines += ["", self.notes]
        return "\n".join([*lines, "", "Examples:", self.examples]).rstrip() + "\n"

    def parse(self, arguments: Sequence[str]) -> Options:
        """The flags that were given.

        Raises:
            OptionError: one is unknown, or lacks its value.
        """
        return Options(usage=self, given=list(_parse(self.options, arguments)))


@dataclass(slots=True, kw_only=True)
class Options:
    """Flags as given, in order; a value is validated when it is read."""

    usage: Usage
    given: list[tuple[str, str | None]] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """True if the flag was given."""
        return any(given == name for given, _ in self.given)

    def values(self, name: str) -> list[str]:
        """All values of a flag that may be given more than once."""
        return [value for given, value in self.given if given == name and value is not None]

    def value(self, name: str) -> str | None:
        """The flag's value, or its default.

        Raises:
            OptionError: it was given more than once.
        """
        values = self.values(name)
        if len(values) > 1:
            raise OptionError(
                f"Found multiple arguments for option {name}, but you asked for only one"
            )
        if values:
            return values[0]
        return next(option.default for option in self.usage.options if option.name == name)

    def required(self, name: str) -> str:
        """The value of a flag that was checked to be there."""
        value = self.value(name)
        assert value is not None, "checked before"
        return value

    def number(self, name: str, *, bound: int = INT_MAX) -> int | None:
        """The flag's value as an Integer, or with `LONG_MAX` as a Long.

        Raises:
            OptionError: it is none.
        """
        text = self.value(name)
        if text is None:
            return None
        number = java_integer(text, bound=bound)
        if number is None:
            raise OptionError(f"Cannot parse argument '{text}' of option {name}")
        return number

    def require(self, *names: str) -> None:
        """Raises UsageError where one of the flags is missing."""
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"')

    def forbid(self, name: str, *others: str) -> None:
        """Raises UsageError where one of `others` was given beside `name`."""
        if self.has(name):
            for other in others:
                if self.has(other):
                    raise UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def require_one_of(self, *names: str) -> None:
        """Raises UsageError unless exactly one of the flags was given."""
        if sum(map(self.has, names)) != 1:
            shown = ", ".join(f"[{name}]" for name in names)
            raise UsageError(f"Exactly one of the following arguments is required: {shown}")


def java_integer(text: str, *, bound: int = INT_MAX) -> int | None:
    """The result of Integer.parseInt (or Long.parseLong with `LONG_MAX`); None if it fails."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not digits.isdecimal() or not digits.isascii():
        return None
    number = int(text)
    return number if -bound - 1 <= number <= bound else None


def parse_pairs(texts: Iterable[str]) -> dict[str, str]:
    """`key=value` texts; one without `=` is a key with an empty value.

    Source: CommandLineUtils.parseKeyValueArgs.
    """
    found = {}
    for text in texts:
        key, _, value = text.partition("=")
        found[key] = value
    return found


def _parse(options: Sequence[Option], arguments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    arities = {option.name: option.arity for option in options}
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            return
        if not argument.startswith("-") or argument == "-":
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        if argument == "-h":
            name = "help"
        arity = arities.get(name)
        if arity is None:
            raise OptionError(f"{name} is not a recognized option")
        if arity == FLAG:
            if equals:
                raise OptionError(f"Option {name} takes no value")
            yield name, None
        elif equals:
            yield name, value
        elif waiting and (arity == VALUE or not waiting[-1].startswith("-")):
            yield name, waiting.pop()
        elif arity == VALUE:
            raise OptionError(f"Option {name} requires an argument")
        else:
            yield name, None


def _wrapped(left: str, text: str) -> list[str]:
    head = [left] if len(left) > _INDENT - 2 else []
    first = " " * _INDENT if head else left.ljust(_INDENT)
    return [
        *head,
        *textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=" " * _INDENT),
    ]
