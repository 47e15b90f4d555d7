"""Texts for flags that kafka-features refuses, recorded from that of Kafka 4.4."""

from __future__ import annotations

import io

import pytest

from cordwood.surfaces.cli.tools import features
from cordwood.surfaces.cli.tools.tool import Terminal

_AT = "--bootstrap-server localhost:1"
_ZERO = (
    "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the provided "
    "maxVersionLevel:0 is < 1."
)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "too few arguments"),
        ("describe", "You must specify either --bootstrap-controller or --bootstrap-server."),
        (f"{_AT} describe --bogus", "unrecognized arguments: '--bogus'"),
        (f"{_AT} describe --node-id", "argument --node-id: expected one argument"),
        (
            f"{_AT} describe --node-id x",
            "argument --node-id: could not convert 'x' to Integer (For input string: \"x\")",
        ),
        ("feature-dependencies", "argument --feature is required"),
        ("version-mapping --feature x=1", "unrecognized arguments: '--feature'"),
        ("version-mapping -f x=1", "unrecognized arguments: '-f'"),
    ],
)
def test_a_line_that_cannot_be_parsed_is_refused_as_by_kafka(line: str, text: str) -> None:
    assert said(line) == f"Command line error: {text}. Type --help for help.\n"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (f"{_AT} upgrade --feature group.version=0", _ZERO),
        (f"{_AT} upgrade --feature a=1 --feature a=0", _ZERO),
        (f"{_AT} upgrade --feature a=-1", "Cannot specify a negative version level."),
        (f"{_AT} downgrade --feature a=-5", "Cannot specify a negative version level."),
        (f"{_AT} disable --feature a --feature a", "Feature a was specified more than once."),
    ],
)
def test_a_level_that_no_change_can_have_is_refused_before_the_cluster_is_asked(
    line: str, text: str
) -> None:
    assert said(line) == f"{text}\n"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("a", "Can't parse feature=level string a: equals sign not found."),
        ("a=", "Can't parse feature=level string a=: unable to parse  as a short."),
        ("share.version=3", "No feature:share.version with feature level 3"),
        ("metadata.version=6", "Unknown metadata.version 6"),
        ("no.such=1", "Unknown feature: no.such"),
    ],
)
def test_what_a_level_needs_is_refused_as_by_kafka(given: str, text: str) -> None:
    assert said(f"feature-dependencies --feature {given}") == f"{text}\n"


def said(line: str) -> str:
    """The output of a refused command line."""
    out, err = io.BytesIO(), io.BytesIO()
    assert features.run(line.split(), Terminal(io.BytesIO(), out, err)) == 1
    assert not out.getvalue()
    return err.getvalue().decode()
