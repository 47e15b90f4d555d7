"""Parses the settings of `--add-config` and `--delete-config`.

Source: org.apache.kafka.tools.ConfigCommand.parseConfigsToBeAdded, parseConfigsToBeDeleted (4.4.0).
"""

from __future__ import annotations

import re

from cordwood.surfaces.cli.setting_values import setting_value
from cordwood.surfaces.cli.tools.options import Options
from cordwood.surfaces.cli.tools.tool import ToolError, read_properties

_OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
_COMMA = re.compile("," + _OUTSIDE_BRACKETS)
_EQUALS = re.compile(r"\s*=\s*" + _OUTSIDE_BRACKETS)
_BRACKETS = re.compile(r"\[?\]?")
_NAME = re.compile(r"[$a-zA-Z0-9._-]*")


def parse_added(options: Options) -> dict[str, str]:
    """The settings to set; a duration such as 1d and a size such as 10GB as a Kafka takes them.

    Raises:
        ConfigError: a duration is not whole in the unit of its setting.
        ToolError: one is not of the form key=value, or a key has an invalid character.
    """
    found: dict[str, str] = {}
    file = options.value("add-config-file")
    if file is not None:
        found |= read_properties(file)
    text = options.value("add-config")
    if text is not None:
        found |= split_settings(text)
    for key in found:
        if not _NAME.fullmatch(key):
            raise ToolError(f"Invalid character found for config key: {key}")
    return {key: setting_value(key, value) for key, value in found.items()}


def split_settings(text: str) -> dict[str, str]:
    """`k1=v1,k2=[v2,v3]` as a mapping.

    Raises:
        ToolError: it is not of that form.
    """
    parts = _COMMA.split(text)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()  # as String.split does
    pairs = [_EQUALS.split(part) for part in parts]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolError(
            "Invalid entity config: all configs to be added must be in the format "
            '"key=val" or  "key=[val1,val2]" to group values which contain commas.'
        )
    return {key.strip(): _BRACKETS.sub("", value).strip() for key, value in pairs}


def parse_deleted(options: Options) -> list[str]:
    """The names of the settings to remove."""
    return [name.strip() for text in options.values("delete-config") for name in text.split(",")]
