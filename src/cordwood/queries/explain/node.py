"""Logs of a running broker explained, from its memory."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from cordwood.cleanup.schedule.next_check import plan_next_check
from cordwood.model.pauses import in_steps
from cordwood.node.node import Node
from cordwood.queries.explain.answer import Explanation
from cordwood.queries.explain.explanation import explain
from cordwood.queries.explain.online_facts import online_facts
from cordwood.queries.on_loop import OnLoop


def explain_node(node: Node, on_loop: OnLoop, globs: Sequence[str]) -> Explanation:
    """Every log of the topics that one of the globs names.

    Raises:
        CordwoodError, OSError: a log cannot be looked at, or the event loop does not answer.
    """
    cleaner, broker = node.cleaner, node.broker
    manager, now_ms = cleaner.manager, node.clock.now_ms()
    logs = [
        log
        for log in sorted(manager.current_logs(), key=lambda log: log.topic_partition)
        if any(fnmatchcase(log.topic_partition.topic, glob) for glob in globs)
    ]
    topics = {log.topic_partition.topic for log in logs}
    ids, origins = on_loop(
        lambda: (
            broker.transactions.ids_by_producer(),
            {topic: broker.configs.topic_origins(topic) for topic in in_steps(topics)},
        )
    )
    planned = plan_next_check(manager, logs, now_ms=now_ms)
    explained = [
        explain(
            online_facts(
                manager,
                cleaner.settings,
                log,
                planned[log.topic_partition],
                origins=origins[log.topic_partition.topic],
                transactional_ids=ids,
                now_ms=now_ms,
            ),
            now_ms=now_ms,
        )
        for log in logs
        if log.topic_partition in planned  # else it was removed this moment
    ]
    return Explanation(now_ms=now_ms, partitions=[each.answer() for each in explained])
