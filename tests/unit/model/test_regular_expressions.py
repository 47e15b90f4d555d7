"""Patterns that RE2 takes, and their matches."""

from __future__ import annotations

import pytest

from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InvalidRegularExpressionError
from cordwood.model.regular_expressions import compile_regular_expression


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "a{1001}", "*", r"a\C", r"\\\C"])
def test_a_pattern_that_is_not_of_re2_is_refused(
    pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidRegularExpressionError) as caught:
        compile_regular_expression(pattern)
    assert caught.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert repr(pattern) in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("x.*", "x0", True),
        ("x.*", "ax0", False),
        (r"\p{Greek}+", "αβγ", True),
        (r"(a|b)*c", "ababc", True),
        ("x", "x\n", False),
        (r"\\C", r"\C", True),
        (r"\Q\C\E", r"\C", True),
    ],
)
def test_a_pattern_matches_the_whole_text(pattern: str, text: str, matches: bool) -> None:
    assert (compile_regular_expression(pattern).fullmatch(text) is not None) is matches


def test_a_pattern_takes_linear_time() -> None:
    assert compile_regular_expression("(a*)*b").fullmatch("a" * 100_000) is None
