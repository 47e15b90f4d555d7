"""The question of why segments are still there, to running brokers; their answers as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cordwood.queries.brokers import Asked, BrokerQuestion
from cordwood.queries.explain.answer import Explanation
from cordwood.queries.explain.outlook import outlook

PATH: Final = "/explain"


def explain_question(topics: Sequence[str]) -> BrokerQuestion[Explanation]:
    """The question about the topics that globs name; all without a glob."""
    return BrokerQuestion(path=PATH, answer=Explanation, parameters={"topic": topics or ["*"]})


def merged(asked: Sequence[Asked[Explanation]]) -> Explanation:
    """The answers of brokers as one, by partition; with several each log names its broker."""
    first, is_alone = asked[0], len(asked) == 1
    logs = [
        log if is_alone else replace(log, node_id=each.broker.node_id)
        for each in asked
        for log in each.answer.partitions
    ]
    logs.sort(key=lambda log: (log.topic, log.partition, log.node_id or 0))
    return replace(
        first.answer,
        partitions=logs,
        broker=first.broker if is_alone else None,
        brokers=None if is_alone else [each.broker for each in asked],
        summary=outlook(logs, now_ms=first.answer.now_ms),
    )
