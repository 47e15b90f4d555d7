"""Effect of changed settings on the logs of a running broker.

The settings are checked and put in force as IncrementalAlterConfigs would, in a copy of the
broker's configs. Views and committed offsets are of this moment; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from cordwood.cleanup.engine.spark.session import cores_here
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.rules.due import DueRule
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.next_check import free_space, frozen_logs, logs_to_plan
from cordwood.configs.alter import Alteration, Resource, supposing
from cordwood.configs.config_file import merge_set_options
from cordwood.configs.effective import EffectiveConfigs
from cordwood.configs.log_config import LogConfig
from cordwood.configs.names import advise_on_broker_name
from cordwood.configs.resource import ConfigResource
from cordwood.configs.sources import settings_of_topic
from cordwood.configs.texts import (
    key_of,
)
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import ALL_TOPICS
from cordwood.model.topic_partition import TopicPartition
from cordwood.node.node import Node
from cordwood.queries.explain.node import cleaner_blockers
from cordwood.queries.on_loop import OnLoop
from cordwood.queries.whatif.answer import Question, WhatIf, answer_of, starts_of
from cordwood.queries.whatif.comparison import (
    NOW,
    THEN,
    BothSettings,
    Compared,
    Comparison,
    Overruled,
    PlannedBoth,
    Space,
    overruled_by_topics,
    plan_both,
)
from cordwood.queries.whatif.effects import Unread, retention_outcome, unread
from cordwood.queries.whatif.question import WhatIfQuestion
from cordwood.storage.log.partition_log import PartitionLog


def what_if_node(node: Node, on_loop: OnLoop, asked: WhatIfQuestion) -> WhatIf:
    """The answer about the logs of a broker.

    Raises:
        ConfigError: the question is wrong, or the broker would refuse a setting.
        CordwoodError, OSError: a log cannot be looked at, or the event loop does not answer.
    """
    logs = sorted(node.cleaner.manager.current_logs(), key=lambda log: log.topic_partition)
    chosen = _chosen(logs, asked.topics)
    topics = {log.topic_partition.topic for log in node.cleaner.manager.logs.logs()}
    resources = _resources(node.broker.node_id, asked.changes, topics)
    shown = {log.topic_partition.topic for log in chosen}
    supposed = on_loop(lambda: _suppose(node, resources, topics, shown))
    now_ms = node.clock.now_ms()
    comparison = _compared(node, chosen, supposed, now_ms=now_ms)
    comparison.overruled = supposed.overruled
    comparison.warnings += _warnings(node, comparison, now_ms=now_ms)
    comparison.warnings += supposed.elsewhere if asked.alone else []
    question = Question(
        now_ms=now_ms,
        days=asked.days,
        cleaners={NOW: node.cleaner.settings, THEN: supposed.cleaner},
        cores=cores_here(),
    )
    lost = _unread(node, comparison) if asked.groups else None
    return answer_of(comparison, question, unread=lost)


# ---- the question


def _resources(node_id: int, changes: Sequence[str], present: set[str]) -> list[Resource]:
    """The changes of settings as those of a request, the broker's own for this broker.

    Those of `ALL_TOPICS` are for the topics that are `present` here.

    Raises:
        ConfigError: there is none, or one is malformed.
    """
    if not changes:
        raise ConfigError("nothing is changed: give a setting with set=[TOPIC:]KEY=VALUE")
    topics, broker = merge_set_options(changes)
    for name in broker:
        if key_of(name) is None:
            advice = advise_on_broker_name(name)
            raise ConfigError(f"{name} is not a setting of a broker{advice and f': {advice}'}")
    resources = [
        Resource(ConfigResource.TOPIC, topic, _alterations(texts))
        for topic in [name for name in _named(topics, present) if name != ALL_TOPICS]
        if (texts := settings_of_topic(topics, topic))
    ]
    if broker:
        resources.append(Resource(ConfigResource.BROKER, str(node_id), _alterations(broker)))
    return resources


def _named(topics: Collection[str], present: set[str]) -> list[str]:
    """The topics that changes are for: those named, and with `ALL_TOPICS` all that are present."""
    return list(dict.fromkeys([*topics, *(sorted(present) if ALL_TOPICS in topics else ())]))


def _alterations(texts: Mapping[str, str]) -> list[Alteration]:
    return [Alteration(name, value) for name, value in texts.items()]


def _chosen(logs: Sequence[PartitionLog], globs: Sequence[str]) -> list[PartitionLog]:
    """The logs of the topics that one of the globs names; all without a glob.

    Raises:
        ConfigError: a glob names no topic.
    """
    topics = {log.topic_partition.topic for log in logs}
    for glob in globs:
        if not any(fnmatchcase(topic, glob) for topic in topics):
            raise ConfigError(f"no topic of this broker matches --topic {glob}")
    named = {
        topic for topic in topics if not globs or any(fnmatchcase(topic, glob) for glob in globs)
    }
    return [log for log in logs if log.topic_partition.topic in named]


# ---- the broker


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supposed:
    """The settings if they were changed.

    `elsewhere` is what this broker has no log of, `overruled` what has no effect on topics.
    """

    configs: Mapping[str, LogConfig]
    limits: DirectoryLimits
    cleaner: CleanerSettings
    elsewhere: list[str]
    overruled: list[Overruled]


def _suppose(
    node: Node, resources: Sequence[Resource], topics: set[str], shown: set[str]
) -> _Supposed:
    """Applies the changes to a copy of the configs, in slices of the event loop.

    Raises:
        ConfigError: the broker would refuse them; the text is Kafka's.
    """
    broker = node.broker
    try:
        configs = supposing(broker.configs, resources)
    except KafkaError as error:
        raise ConfigError(str(error)) from error
    named = [each.name for each in resources if each.kind == ConfigResource.TOPIC]
    return _Supposed(
        configs={topic: configs.log_config(topic) for topic in in_steps(topics)},
        limits=DirectoryLimits.of(configs.values),
        cleaner=CleanerSettings.of(configs.values),
        elsewhere=_elsewhere(node, named),
        overruled=_overruled(configs, resources, shown),
    )


def _overruled(
    configs: EffectiveConfigs, resources: Sequence[Resource], topics: Collection[str]
) -> list[Overruled]:
    """The topics' own values of the settings that change for the broker."""
    changed = {
        alteration.name
        for each in resources
        if each.kind == ConfigResource.BROKER
        for alteration in each.alterations
    }
    if not changed:
        return []
    origins = {topic: configs.topic_origins(topic) for topic in in_steps(topics)}
    return overruled_by_topics(origins, changed)


def _elsewhere(node: Node, names: Sequence[str]) -> list[str]:
    found = []
    topics = node.broker.metadata.image.topics
    for topic in names:
        for number, each in in_steps(sorted(topics[topic].partitions.items())):
            if node.broker.node_id not in each.replicas:
                brokers = ", ".join(map(str, each.replicas))
                partition = TopicPartition(topic, number)
                found.append(f"{partition} is not looked at: its replicas are on brokers {brokers}")
    return found


def _compared(
    node: Node, chosen: Sequence[PartitionLog], supposed: _Supposed, *, now_ms: int
) -> Comparison:
    """Both sides, on one view of each log that they depend on."""
    manager = node.cleaner.manager
    limits = {NOW: DirectoryLimits.of(manager.logs.broker), THEN: supposed.limits}
    in_force = [log.config for log in manager.logs.logs()]
    configs = (*in_force, *supposed.configs.values())
    logs = [
        log
        for log in logs_to_plan(manager, chosen, configs, limits.values())
        if log.topic_partition.topic in supposed.configs  # else it was made this moment
    ]
    then = [supposed.configs[log.topic_partition.topic] for log in logs]
    known = manager.groups.look_up_for(
        (log.topic_partition, config)
        for log, changed in zip(logs, then, strict=True)
        for config in (log.config, changed)
    )
    shared = frozen_logs(manager, logs, known, now_ms=now_ms)
    free = free_space(manager, shared, limits.values())
    return compare_running(
        [
            BothSettings(log=log, then_view=replace(log.view, config=config))
            for log, config in zip(shared, then, strict=True)
        ],
        Space(limits=limits, free_bytes=free.free_bytes, freeing=free.freeing),
        shown={log.topic_partition.topic for log in chosen},
        now_ms=now_ms,
    )


def _warnings(node: Node, comparison: Comparison, *, now_ms: int) -> list[str]:
    """Warnings: logs that the cleaner skips whatever their settings, and unknown groups."""
    cleaner, found = node.cleaner, []
    for each in comparison.partitions:
        log = cleaner.manager.logs.get(each.view.topic_partition)
        if log is None or not (each.view.config.compact or each.then_view.config.compact):
            continue
        if DueRule.of(each.then_view.config) not in {None, DueRule.of(each.view.config)}:
            found.append(
                f"{each.name}: what becomes removable in its clean section is not looked at"
            )
        blockers = cleaner_blockers(cleaner.manager, cleaner.settings, log, now_ms)
        found += [f"{each.name}: the cleaner does not work on it: {b.text}" for b in blockers]
    return found


def _unread(node: Node, comparison: Comparison) -> list[Unread]:
    """Records that groups would lose where a log start offset moves, by their committed offsets."""
    starts = starts_of(comparison)
    if not starts:
        return []
    partitions = [
        each.view.topic_partition for each in comparison.partitions if each.name in starts
    ]
    committed = node.broker.committed_offsets.look_up(partitions)
    comparison.warnings += committed.warnings
    return unread(committed.offsets, starts)


def compare_running(
    logs: Sequence[BothSettings], space: Space, *, shown: Collection[str], now_ms: int
) -> Comparison:
    """Both sides, of the logs that the changes concern.

    Args:
        logs: all that share limits with those of the topics to be shown.
        space: the limits of log directories.
        shown: the topics that are asked for.
        now_ms: the time.

    Raises:
        CorruptError, OSError: an index of a log cannot be read.
    """
    comparison = Comparison(changes={}, broker_changes=space.changes)
    changes: dict[str, dict[str, tuple[str, str]]] = {}
    for planned in plan_both(logs, space, now_ms=now_ms):
        log = planned.log.log
        topic = log.view.topic_partition.topic
        if topic not in shown or log.is_future:
            continue
        changes[topic] = planned.changes
        if planned.is_concerned:
            comparison.partitions.append(_compared_log(planned, now_ms))
    comparison.changes = {topic: change for topic, change in sorted(changes.items()) if change}
    comparison.unchanged_topics = len(changes) - len(comparison.changes)
    return comparison


def _compared_log(planned: PlannedBoth, now_ms: int) -> Compared:
    log = planned.log.log
    then_view = planned.log.then_view
    return Compared(
        topic=log.view.topic_partition.topic,
        partition=log.view.topic_partition.partition,
        log_dir=log.log_dir,
        view=log.view,
        then_view=then_view,
        next_24h=planned.next_24h,
        now=retention_outcome(log.view, planned.now, now_ms=now_ms),
        then=retention_outcome(then_view, planned.then, now_ms=now_ms),
        is_same=planned.is_same,
    )
