"""`.kafka_cleanshutdown`: its presence means that the last shutdown was clean.

Source: org.apache.kafka.storage.internals.log.CleanShutdownFileHandler.
"""

from __future__ import annotations

import json

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError

VERSION = 0
UNKNOWN_BROKER_EPOCH = -1


def parse_clean_shutdown(data: Buffer | str) -> int:
    """The broker epoch at the clean shutdown; -1 if the file (of an older Kafka) has none.

    Raises:
        CorruptError: the file is neither empty nor valid JSON of Kafka's form.
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
