from __future__ import annotations

import pytest

from cordwood.surfaces.cli.tools.options import (
    LONG_MAX,
    OPTIONAL,
    Option,
    OptionError,
    Options,
    Usage,
    UsageError,
    java_integer,
    parse_pairs,
)

USAGE = Usage(
    tool="test",
    summary="Tests.",
    options=(
        Option("flag", "A flag."),
        Option("name", "A name.", "NAME"),
        Option("count", "A number.", "N", default="7"),
        Option("codec", "Perhaps a value.", "CODEC", OPTIONAL),
        Option("producer.config", "A name with a dot.", "FILE"),
    ),
    examples="  cordwood test",
)


def parsed(*arguments: str) -> Options:
    return USAGE.parse(arguments)


@pytest.mark.parametrize(
    "arguments",
    [("--name", "x"), ("--name=x",), ("-name", "x"), ("a", "--name", "x", "b"), ("--name=x", "--")],
)
def test_a_value_follows_an_equals_sign_or_comes_next(arguments: tuple[str, ...]) -> None:
    assert parsed(*arguments).value("name") == "x"


def test_a_required_value_may_begin_with_dashes() -> None:
    assert parsed("--name", "--flag").given == [("name", "--flag")]


def test_an_optional_value_may_not() -> None:
    assert parsed("--codec", "--flag").given == [("codec", None), ("flag", None)]
    assert parsed("--codec", "gzip").value("codec") == "gzip"
    assert parsed("--codec").has("codec")


def test_behind_two_dashes_nothing_is_a_flag() -> None:
    assert parsed("--", "--name", "x").given == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--foo",), "foo is not a recognized option"),
        (("--nam", "x"), "nam is not a recognized option"),
        (("--name",), "Option name requires an argument"),
        (("--flag=x",), "Option flag takes no value"),
    ],
)
def test_what_the_parser_refuses_it_refuses_in_its_own_words(
    arguments: tuple[str, ...], text: str
) -> None:
    with pytest.raises(OptionError, match=f"^{text}$"):
        parsed(*arguments)


def test_values_are_judged_when_they_are_asked_for() -> None:
    options = parsed("--count", "x", "--name", "a", "--name", "b")
    assert options.values("name") == ["a", "b"]
    with pytest.raises(OptionError, match="Cannot parse argument 'x' of option count"):
        options.number("count")
    with pytest.raises(
        OptionError, match="Found multiple arguments for option name, but you asked for only one"
    ):
        options.value("name")


def test_a_default_stands_in() -> None:
    assert (parsed().number("count"), parsed().value("name")) == (7, None)


def test_what_does_not_go_together_is_told_in_kafkas_words() -> None:
    options = parsed("--flag", "--codec")
    with pytest.raises(UsageError, match=r'Missing required argument "\[name\]"'):
        options.require("flag", "name")
    with pytest.raises(
        UsageError, match=r'Option "\[flag\]" can\'t be used with option "\[codec\]"'
    ):
        options.forbid("flag", "name", "codec")
    options.forbid("name", "codec")
    with pytest.raises(UsageError, match=r"is required: \[flag\], \[codec\]"):
        options.require_one_of("flag", "codec")
    options.require_one_of("flag", "name")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-2147483648", -2147483648),
        ("-2147483649", None),
        ("+5", 5),
        ("", None),
        ("1_0", None),
        (" 1", None),
        ("٣", None),
    ],
)
def test_numbers_are_those_of_java(text: str, number: int | None) -> None:
    assert java_integer(text) == number


def test_longs_reach_further() -> None:
    assert java_integer("9223372036854775807", bound=LONG_MAX) == LONG_MAX
    assert java_integer("9223372036854775808", bound=LONG_MAX) is None


def test_pairs_keep_further_equals_signs_and_may_lack_a_value() -> None:
    assert parse_pairs(["a=b=c", "d", "e="]) == {"a": "b=c", "d": "", "e": ""}


def test_usage_names_each_flag_with_its_placeholder_and_default() -> None:
    text = USAGE.text()
    assert "Usage: cordwood test [OPTION]..." in text
    assert "--count N" in text
    assert "A number. Default 7." in text
    assert "--codec [CODEC]" in text
    assert all(len(line) <= 100 for line in text.splitlines())
