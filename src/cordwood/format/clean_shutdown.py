"""`.kafka_cleanshutdown`: its presence says that the last stop was a clean one.

Source: org.apache.kafka.storage.internals.log.CleanShutdownFileHandler.
"""

from __future__ import annotations

import json

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError

VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


def parse_clean_shutdown(data: Buffer | str) -> int:
    """The broker epoch at the clean stop; -1 where the file (of an older Kafka) names none.

    Raises:
        CorruptError: it is neither empty nor the JSON that Kafka writes.
    """
    text = data if isinstance(data, str) else bytes(data)
    if not text:
        return UNKNOWN_BROKER_EPOCH
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise CorruptError(".kafka_cleanshutdown is not a JSON object")
    epoch = content.get("brokerEpoch", UNKNOWN_BROKER_EPOCH)
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise CorruptError(f".kafka_cleanshutdown has broker epoch {epoch!r}")
    return epoch


def build_clean_shutdown(broker_epoch: int) -> bytes:
    """The file's bytes."""
    return f'{{"version":{VERSION},"brokerEpoch":{broker_epoch}}}'.encode()
