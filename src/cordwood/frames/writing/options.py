"""The options of `df.write.format("cordwood")`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.configs.config_file import require_topic_name
from cordwood.frames.option_values import number_of
from cordwood.model.errors import ConfigError

#: The records of a batch take about as many bytes before compression, by default.
BATCH_BYTES: Final = 256 << 10

_NAMES: Final = ("path", "topic", "partitions", "batchBytes", "ifExists")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The choice of what is written, and where.

    `partitions` is how many a new topic gets, None for num.partitions. With `must_be_new` a topic
    that is there is an error. `settings` are settings of the topic, by name.
    """

    log_dir: Path
    topic: str
    partitions: int | None
    batch_bytes: int
    must_be_new: bool
    settings: Mapping[str, str]


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a `DataFrameWriter`, by name, in whatever case; a setting's has a dot.

    Raises:
        ConfigError: one is missing, unknown, or has a wrong value.
    """
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in _NAMES}
    unknown = [name for name in options if name not in known and "." not in name]
    if unknown:
        raise ConfigError(
            f"unknown option {', '.join(sorted(unknown))}: the options of what is written are "
            f"{', '.join(_NAMES)}, and settings of a topic"
        )
    for name in ("path", "topic"):
        if not options.get(name):
            raise ConfigError(f"option {name} is missing")
    if "://" in options["path"]:
        raise ConfigError(
            f"option path: {options['path']} is no log directory; a topic is written to one that "
            "the tasks reach as a directory"
        )
    require_topic_name(options["topic"], where="option topic")
    if_exists = options.get("ifexists", "append").lower()
    if if_exists not in {"append", "fail"}:
        raise ConfigError(f"option ifExists: {if_exists!r} is neither append nor fail")
    return WriteOptions(
        log_dir=Path(options["path"]),
        topic=options["topic"],
        partitions=number_of(options, "partitions", 0, at_least=1)
        if "partitions" in options
        else None,
        batch_bytes=number_of(options, "batchBytes", BATCH_BYTES, at_least=1),
        must_be_new=if_exists == "fail",
        settings={name: value for name, value in options.items() if "." in name},
    )
