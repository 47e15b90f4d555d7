"""Kafka's tool for features and Cordwood's, to be compared."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from cordwood.surfaces.cli.tools import features
from cordwood.surfaces.cli.tools.tool import Terminal
from support.kafka_tools import KafkaTools

AT_BROKER: Final = "--bootstrap-server"
AT_CONTROLLER: Final = "--bootstrap-controller"


class Shown(NamedTuple):
    """The exit code of a tool, and what it printed.

    Left out are stack traces, and epochs, which are those of a cluster's log.
    """

    code: int
    out: list[str]
    err: str


def shown_by_kafka(
    tools: KafkaTools, servers: str, words: Sequence[str], *, at: str = AT_BROKER
) -> Shown:
    """Runs kafka-features with these arguments at a broker, or a controller."""
    done = tools.run("features", at, servers, *words)
    return _shown(done.code, done.out, done.err)


def shown_by_cordwood(servers: str, words: Sequence[str], *, at: str = AT_BROKER) -> Shown:
    """Runs `cordwood features` with these arguments at a broker, or a controller."""
    out, err = io.BytesIO(), io.BytesIO()
    terminal = Terminal(io.BytesIO(), out, err)
    code = features.run([at, servers, *words], terminal)
    return _shown(code, out.getvalue().decode(), err.getvalue().decode())


def _shown(code: int, out: str, err: str) -> Shown:
    err = re.sub(r"(?m)^(\tat .*|Caused by: .*|\t\.\.\. .*|\[.*)\n?", "", err)
    return Shown(code, re.sub(r"Epoch: \d+", "Epoch: N", out).splitlines(), err.rstrip())
