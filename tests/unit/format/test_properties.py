"""Every expected value is what java.util.Properties of Java 17 made of the same text."""

from __future__ import annotations

import pytest

from cordwood.format.properties import parse_properties
from cordwood.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("  a  =  b  ", {"a": "b  "}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a=1\na=2", {"a": "2"}),
        ("# x\\\na=b\n  ! y\n\n", {"a": "b"}),
        ("log.dirs=/a,\\\n  /b", {"log.dirs": "/a,/b"}),
        ("a=b\\\r\nc", {"a": "bc"}),
        ("a=x\\\n#y", {"a": "x#y"}),
        ("\\\n# y\na=b", {"a": "b"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("k\\ ey=v", {"k ey": "v"}),
        ("k\\=e=v=w", {"k=e": "v=w"}),
        ("a\\t=\\n\\q", {"a\t": "\nq"}),
        ("\\u0041=\\ud83d\\ude00", {"A": "\N{GRINNING FACE}"}),
        ("a", {"a": ""}),
        ("=v", {"": "v"}),
        ("a = : b", {"a": ": b"}),
    ],
)
def test_properties(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


@pytest.mark.parametrize("text", ["a=1\nb=\\u00", "a=1\nb=\\u00g0", "a=1\nb=\\u+123"])
def test_malformed_escapes(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^server\.properties, line 2: Malformed \\uxxxx"):
        parse_properties(text, name="server.properties")
