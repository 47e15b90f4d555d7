"""Settings as values of Python, for the brokers and clusters of tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from cordwood.model.errors import ConfigError

#: A setting's value as Python has it; see `setting_text`.
SettingValue = str | int | float | bool | PurePath | Sequence[str | int | float | bool | PurePath]


def setting_text(name: str, value: SettingValue) -> str:
    """A setting's value as server.properties has it.

    Args:
        name: of the setting, for the error.
        value: text as it is; an int or a float; a bool as `true` or `false`; a path; several of
            these, in any sequence, with commas between them.

    Raises:
        ConfigError: the value is of another type, or None: leave the setting out for its default.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float | PurePath):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return ",".join(setting_text(name, each) for each in value)
    raise ConfigError(
        f"{name}={value!r}: a setting's value is a str, int, float, bool or path, or a list of "
        f"these, not {type(value).__name__}"
    )
