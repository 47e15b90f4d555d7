"""Numbers in options."""

from __future__ import annotations

import pytest

from cordwood.frames.option_values import number_of
from cordwood.model.errors import ConfigError


def test_a_number_is_found_by_its_name_in_lower_case() -> None:
    assert number_of({"slicebytes": "7"}, "sliceBytes", 1) == 7
    assert number_of({}, "sliceBytes", 1) == 1


@pytest.mark.parametrize("text", ["", "x", "1.5", "-1"])
def test_what_is_no_number_or_too_small_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match="option sliceBytes: "):
        number_of({"slicebytes": text}, "sliceBytes", 1)
