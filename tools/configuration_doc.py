"""Writes docs/configuration.md from the table of settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cordwood.configs.table import (
    LOG_BROKER_SETTINGS,
    TOPIC_SETTINGS,
    Dynamic,
    Setting,
    broker_settings,
    client_metrics_settings,
    group_settings,
)
from cordwood.configs.value import format_value

PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

INTRODUCTION = """\
# Settings

<!-- Written by tools/configuration_doc.py from src/cordwood/configs/settings.tsv: change
it there. -->

Cordwood's settings are Kafka 4.4's, with their names, types, defaults, bounds and error texts.
Those that begin with `cordwood.` are its own.

## Cordwood's own settings of topics

They are off by default; what they do is described under
[own retention rules](design/cleanup-rules.md#own-retention-rules). There are these ways to set
them:

- for a topic, with `cordwood configs --alter` or Kafka's tools, at a broker whose controller is
  Cordwood's;
- for a topic, with a property `cordwood.topic.TOPIC.KEY=VALUE` of the broker, where a Kafka
  controller refuses settings that Kafka does not have. KEY is the whole name: for `orders`,
  `cordwood.topic.orders.cordwood.timestamp.future.policy=append-time`. It is read at the start;
- for all topics, with the broker setting of the same name, in its properties or dynamically, which
  a Kafka controller accepts;
- for `cordwood clean`, as any other setting.

They are described (`kafka-configs --describe --all`) only where one is set, or if it is requested
by name.

## Where a setting comes from

Level first, source second, as in Kafka. The first level that has a value wins:

| level | sources, in order of precedence |
| --- | --- |
| topic | `--set TOPIC:KEY=VALUE`, the config file's `topics`, the metadata log |
| static topic | `cordwood.topic.TOPIC.KEY` in `--server-properties`, for own settings |
| dynamic broker | the metadata log, for this broker |
| dynamic cluster default | the metadata log, for all brokers |
| static broker | `--set KEY=VALUE`, the config file's `broker`, `--server-properties` |
| default | Kafka |

- Inside a level milliseconds come before minutes before hours, whatever the source. A setting
  that has no effect for that reason is reported.
- Only settings marked *dynamic* can be changed in the metadata log; Kafka ignores the others there,
  and so does Cordwood.
- A negative retention means no limit. A retention of 0 is refused for a broker; for a topic
  it means that records may be deleted immediately.
- `--set KEY=VALUE` also accepts the name of a topic setting, and then sets the broker setting
  behind it. It never applies to topics whose names begin with two underscores.
- A name that is not Kafka's is refused in `--set` and in a config file, with the right one if a
  similar one exists. In `server.properties`, in which Kafka ignores unknown names, a known old or
  wrong name gives a warning.
- **A topic that no source describes is skipped**, unless `--defaults` is given. The metadata log
  describes the topics it lists; `--set TOPIC:KEY` and a config file's `topics` describe those they
  name; `--set KEY` and a config file's `broker` describe all topics but those whose names begin
  with two underscores, if they are about topics at all. `server.properties` alone describes none:
  a topic's own settings would be unknown.
- Kafka's own topics (`__consumer_offsets`, `__transaction_state`, `__share_group_state`,
  `__remote_log_metadata`) that the metadata log does not list get the settings with which Kafka
  creates them.

## The config file

JSON or YAML:

```yaml
topics:
  orders:
    cleanup.policy: [compact, delete]
    retention.ms: 86400000
broker:
  log.retention.hours: 24
```
"""

TOPICS = """
## Settings of topics

| name | default | unit | values | of the broker | meaning |
| --- | --- | --- | --- | --- | --- |
"""

SERVER_PROPERTIES = """
## How `cordwood serve` uses server.properties

- Kafka's own file works. Without `listeners` the broker listens on `127.0.0.1:9092` only;
  `node.id` (1), `process.roles` and `controller.listener.names` are optional.
- A setting for an unsupported feature that must not be ignored prevents the start; the error gives
  its name, its value and a remedy: listeners other than PLAINTEXT, `ssl.*`, `sasl.*`,
  `authorizer.class.name`, `delegation.token.secret.key`, `config.providers`, `security.providers`,
  classes of policies, quotas and principals, `remote.log.storage.system.enable=true`, several
  controllers where this node is one of them, ZooKeeper. Kafka's default, or an empty value, is
  accepted.
- Values with which Kafka would not start are refused with Kafka's error texts.
- Known old or wrong names give a warning. Other unknown names are accepted, and described as by
  Kafka. `cordwood.*` are Cordwood's own.
- `kafka-configs --describe --all` prints the same as with a real Kafka 4.4, line by line.
- *dynamic*: *cluster* may be set for all brokers or for one, *broker* for one only, at run time.
  Listeners cannot be added or removed at run time.
- Levels of loggers (`--entity-type broker-loggers`) have the names of Kafka's classes and of
  Cordwood's loggers, and are kept in memory.
- Socket buffers are sized by the operating system, unless `socket.send.buffer.bytes` or
  `socket.receive.buffer.bytes` are given.
- Accepted, described and without effect: `queued.max.requests` and `queued.max.request.bytes` (each
  connection has one request in progress), `num.network.threads`, `num.io.threads` and
  `background.threads` (one thread serves all), `max.connection.creation.rate`,
  `socket.listen.backlog.size` (1024 may wait), `max.connections` and the like of a single listener
  (`listener.name.*`), `transaction.state.log.load.buffer.size`,
  `replica.alter.log.dirs.io.max.bytes.per.second`, and everything about remote storage and share
  groups.
"""

BROKERS = """
## Settings of brokers

| name | type | default | unit | values | dynamic | meaning |
| --- | --- | --- | --- | --- | --- | --- |
"""

OTHERS = """
## Other settings of brokers

They are read, checked, changed and described as in Kafka. Those about what Cordwood does not serve
(encryption, authentication, plugins, tiered storage, a quorum of controllers) have no other effect.

| name | type | default | dynamic | meaning |
| --- | --- | --- | --- | --- |
"""

GROUPS = """
## Settings of groups

| name | type | default | of the broker | meaning |
| --- | --- | --- | --- | --- |
"""

CLIENT_METRICS = """
## Settings of subscriptions of client metrics

| name | type | default | meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The text of the page."""
    topics = (_topic_row(setting) for setting in TOPIC_SETTINGS.values())
    brokers = (_broker_row(setting) for _, setting in sorted(LOG_BROKER_SETTINGS.items()))
    others = (key for key in broker_settings().values() if key.name not in LOG_BROKER_SETTINGS)
    parts = (
        INTRODUCTION,
        SERVER_PROPERTIES,
        TOPICS,
        *topics,
        BROKERS,
        *brokers,
        OTHERS,
        *(_other_row(key) for key in sorted(others, key=lambda key: key.name)),
        GROUPS,
        *(_group_row(key) for key in group_settings().values()),
        CLIENT_METRICS,
        *(_row((*_named(key), key.doc)) for key in client_metrics_settings().values()),
    )
    return "".join(parts)


def _topic_row(setting: Setting) -> str:
    brokers = ", ".join(f"`{name.name}`" for name in setting.broker_names) or "-"
    values = setting.rule.valid_values or setting.rule.kind.lower()
    return _row(
        (f"`{setting.name}`", _default(setting), setting.unit, values, brokers, setting.doc)
    )


def _broker_row(setting: Setting) -> str:
    return _row(
        (
            f"`{setting.name}`",
            setting.rule.kind.lower(),
            _default(setting),
            setting.unit,
            setting.rule.valid_values,
            "yes" if setting.is_dynamic else "",
            setting.doc,
        )
    )


def _other_row(key: Setting) -> str:
    dynamic = "" if key.dynamic is Dynamic.NO else str(key.dynamic)
    return _row((*_named(key), dynamic, key.doc))


def _group_row(key: Setting) -> str:
    brokers = ", ".join(f"`{name.name}`" for name in key.broker_names) or "-"
    return _row((*_named(key), brokers, key.doc))


def _named(key: Setting) -> tuple[str, str, str]:
    return f"`{key.name}`", key.rule.kind.lower(), _default(key).replace("|", "\\|")


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "unset"
    return format_value(setting.default) or "(empty)"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
