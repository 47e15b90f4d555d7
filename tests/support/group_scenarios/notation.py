"""Partitions of topics in scenarios: `t:0,1;u:2`."""

from __future__ import annotations

from collections.abc import Iterable

NONE = "-"

Named = tuple[tuple[str, tuple[int, ...]], ...]
"""Topics by name, each with some of its partitions."""


def parse_partitions(text: str) -> Named:
    """The partitions that a text names."""
    topics = (word.partition(":") for word in text.split(";") if text != NONE)
    return tuple((name, tuple(map(int, numbers.split(",")))) for name, _, numbers in topics)


def partitions_text(topics: Iterable[tuple[str, Iterable[int]]]) -> str:
    """The text for partitions, in the order of names and numbers."""
    named = sorted((name, sorted(numbers)) for name, numbers in topics)
    return ";".join(f"{name}:{_joined(numbers)}" for name, numbers in named) or NONE


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def names_text(names: Iterable[str]) -> str:
    """The text for names of topics, in their order."""
    return ",".join(sorted(names)) or NONE


def parse_names(text: str) -> tuple[str, ...]:
    """The names that a text lists."""
    return () if text == NONE else tuple(text.split(","))
