"""The options of a stream: `spark.readStream.format("cordwood").option(name, value)`.

They have the names and defaults of Spark's Kafka source, as far as it has them.

Source: org.apache.spark.sql.kafka010.KafkaSourceProvider, JsonUtils.partitionOffsets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cordwood.frames.option_values import number_of
from cordwood.frames.options import OFFSETS_OPTIONS
from cordwood.model.errors import ConfigError
from cordwood.model.topic_partition import TopicPartition

#: The options that only a stream has.
STREAM_OPTIONS: Final = (
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnDataLoss",
)

#: In place of an offset: the end of the log, its beginning.
LATEST: Final = -1
EARLIEST: Final = -2

_STARTS: Final = {"latest": LATEST, "earliest": EARLIEST}
_BOOLEANS: Final = {"true": True, "false": False}
_DELAY: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d|)", re.ASCII | re.IGNORECASE)
_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The start of a stream, the limits of its batches, and whether it fails if records are lost.

    `starts` are the offsets of `startingOffsets`, LATEST or EARLIEST in their place, by partition;
    None for `start` of all partitions. With `first_ms` (`startingTimestamp`) each begins at its
    first record with this timestamp or a later one instead, and at its end if it has none.
    `offsets_max`, `bytes_max` and `offsets_min` are of one batch of the stream, None without a
    limit; after `delay_ms` fewer than `offsets_min` are read, too.
    """

    start: int = LATEST
    starts: Mapping[TopicPartition, int] | None = None
    first_ms: int | None = None
    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    delay_ms: int = 15 * _UNITS_MS["m"]
    fails_on_data_loss: bool = True


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a `DataStreamReader` that say how it reads, by name, in whatever case.

    Raises:
        ConfigError: one has a wrong value, or is not of a stream.
    """
    options = {name.lower(): value for name, value in given.items()}
    _refuse(options, OFFSETS_OPTIONS, "a stream has startingOffsets")
    start, starts = _starts(options.get("startingoffsets", "latest"))
    offsets_max = _limit(options, "maxOffsetsPerTrigger")
    offsets_min = _limit(options, "minOffsetsPerTrigger")
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise ConfigError(
            f"option minOffsetsPerTrigger: {offsets_min} is more than maxOffsetsPerTrigger, "
            f"{offsets_max}"
        )
    return StreamOptions(
        start=start,
        starts=starts,
        first_ms=_known(options, "startingTimestamp", at_least=0),
        offsets_max=offsets_max,
        bytes_max=_limit(options, "maxBytesPerTrigger"),
        offsets_min=offsets_min,
        delay_ms=_delay_ms(options.get("maxtriggerdelay", "15m")),
        fails_on_data_loss=_boolean("failOnDataLoss", options.get("failondataloss", "true")),
    )


def refuse_stream_options(given: Iterable[str]) -> None:
    """Refuses options of a stream where a table is read once; takes names in whatever case.

    Raises:
        ConfigError: there is one.
    """
    _refuse({name.lower() for name in given}, STREAM_OPTIONS, "it is of spark.readStream")


def _refuse(given: Iterable[str], names: Iterable[str], why: str) -> None:
    lower = set(given)
    wrong = [name for name in names if name.lower() in lower]
    if wrong:
        raise ConfigError(f"option {wrong[0]}: {why}")


def _known(options: Mapping[str, str], name: str, *, at_least: int) -> int | None:
    return number_of(options, name, 0, at_least=at_least) if name.lower() in options else None


def _limit(options: Mapping[str, str], name: str) -> int | None:
    return _known(options, name, at_least=1)


def _starts(text: str) -> tuple[int, Mapping[TopicPartition, int] | None]:
    start = _STARTS.get(text.strip().lower())
    if start is not None:
        return start, None
    try:
        found = {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, offsets in json.loads(text).items()
            for partition, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            f"option startingOffsets: {text!r} is none of earliest, latest, and JSON such as "
            '{"topic": {"0": 12, "1": -2}}, where -2 is earliest and -1 latest'
        ) from None
    wrong = [partition for partition, offset in found.items() if offset < EARLIEST]
    if wrong:
        raise ConfigError(f"option startingOffsets: {wrong[0]}: {found[wrong[0]]} is no offset")
    return LATEST, found


def _delay_ms(text: str) -> int:
    found = _DELAY.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"option maxTriggerDelay: {text!r} is no time such as 15m, 30s or 500ms")
    return int(found[1]) * _UNITS_MS[found[2].lower()]


def _boolean(name: str, text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise ConfigError(f"option {name}: {text!r} is neither true nor false")
    return value
