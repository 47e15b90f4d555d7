"""UTF-8 as Java reads it: malformed input becomes U+FFFD and never an error."""

from __future__ import annotations

import codecs

Buffer = bytes | bytearray | memoryview

_HANDLER = "cordwood.java-replace"


def decode_utf8(data: Buffer) -> str:
    """The text of `data`, as Java's `new String(data, UTF_8)` decodes it.

    Python and Java use the same number of U+FFFD for a malformed sequence, except for surrogates
    (ED A0..BF ..): Java replaces the whole sequence once, Python each byte.

    Source: java.lang.String (JDK 17).
    """
    return str(data, "utf-8", _HANDLER)


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    is_surrogate = data[start] == 0xED and start + 1 < len(data) and 0xA0 <= data[start + 1] <= 0xBF
    if not is_surrogate:
        return "\ufffd", error.end
    has_third = start + 2 < len(data) and data[start + 2] & 0xC0 == 0x80
    return "\ufffd", start + (3 if has_third else 2)


codecs.register_error(_HANDLER, _replace_as_java)
