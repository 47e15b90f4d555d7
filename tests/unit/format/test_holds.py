"""The file of legal holds: what is written is read, anything else is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.holds import build_holds, parse_holds
from cordwood.model.errors import ConfigError, CordwoodError, CorruptError, UnsupportedVersionError
from cordwood.model.hold import Hold, parse_target

NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
TEXTS = st.text(max_size=30).filter(str.isprintable)
HOLDS = st.builds(
    Hold,
    id=NAMES,
    topic=NAMES,
    partition=st.none() | st.integers(0, 999),
    reason=TEXTS,
    by=TEXTS,
    created_ms=st.integers(0, 1 << 45),
)
HOLD = Hold(id="a", topic="t", partition=None, reason="r", by="b", created_ms=1)


@given(st.lists(HOLDS, unique_by=lambda hold: hold.id))
def test_holds_are_read_as_they_were_written(holds: list[Hold]) -> None:
    assert parse_holds(build_holds(holds)) == tuple(holds)


@given(st.data())
def test_cut_or_changed_bytes_are_refused_or_are_other_holds(data: st.DataObject) -> None:
    whole = bytearray(build_holds([HOLD]))
    place = data.draw(st.integers(0, len(whole) - 2))
    with pytest.raises(CorruptError):
        parse_holds(bytes(whole[:place]))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        (found,) = parse_holds(bytes(whole))
    except CordwoodError:
        return
    assert isinstance(found, Hold)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "a b"},
        {"id": ""},
        {"topic": 1},
        {"topic": "a/b"},
        {"partition": "1"},
        {"partition": True},
        {"created_ms": 1.5},
        {"reason": "two\nlines"},
        {"more": 1},
    ],
)
def test_a_hold_with_a_wrong_value_is_refused(change: dict[str, object]) -> None:
    document = json.loads(build_holds([HOLD]))
    document["holds"][0] |= change
    with pytest.raises(CorruptError, match="not a file of legal holds"):
        parse_holds(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 1}', b'{"version":1,"holds":1}'])
def test_what_is_no_such_file_is_refused_with_what_to_do(data: bytes) -> None:
    with pytest.raises(CorruptError, match=r"if there is no hold, remove it"):
        parse_holds(data)


def test_two_holds_of_one_id_and_later_versions_are_refused() -> None:
    with pytest.raises(CorruptError, match="two legal holds have one id"):
        parse_holds(build_holds([HOLD, HOLD]))
    with pytest.raises(UnsupportedVersionError):
        parse_holds(b'{"version": 2, "holds": []}')


def test_targets() -> None:
    assert parse_target("orders") == ("orders", None)
    assert parse_target("orders:12") == ("orders", 12)
    for wrong in ("", ":1", "orders:", "orders:x", "orders:-1", "a b", "orders:1:2", "orders:٣"):
        with pytest.raises(ConfigError, match="expected a topic, or a partition such as orders:3"):
            parse_target(wrong)
