"""Writes docs/metrics.md from the table of metrics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cordwood.surfaces.metrics.jobs import CLEAN, EXPLAIN, VERIFY
from cordwood.surfaces.metrics.metric import Metric
from cordwood.surfaces.metrics.table import TABLE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics

<!-- Written by tools/metrics_doc.py from src/cordwood/surfaces/metrics: change it there. -->

`cordwood serve` answers `GET /metrics` at port 9464 of 127.0.0.1 (`--http-port`), in Prometheus'
text format or OpenMetrics, as requested. If the port is in use, another one is used and logged.

```yaml
scrape_configs:
  - job_name: kafka
    static_configs:
      - targets: ["127.0.0.1:9464"]
```

The metrics are Kafka's. Their names follow the rules of Prometheus' JMX exporter
(`kafka-2_0_0.yml`) and of Strimzi (`kafka-metrics.yaml`) for Kafka's MBeans, so that dashboards and
alerts made for either work:

- `kafka.DOMAIN:type=TYPE,name=NAME` is `kafka_domain_type_name`, in lower case; other characters
  than letters and digits become `_`.
- A rate (`...PerSec`) is a counter: `..._total` without `PerSec`. Prometheus computes the
  rate.
- `...Percent` is `..._percent`.
- A histogram (`...TimeMs`) has `_count`, and quantiles 0.50, 0.75, 0.95, 0.98, 0.99 and 0.999
  over the last 1028 values; and `_sum`, which the exporter does not have.
- Tags are labels, spelled as in Kafka. A metric that Kafka has both for a topic and for all is
  one metric; its value without the label `topic` is that of all topics. A topic has a value when it
  is not 0, until the topic is deleted.

Differences: `logDirectory` has no quotation marks around the path. Text is the label of a value 1.
One thread serves the network, `networkProcessor` 0.

A node that is a controller alone (`process.roles=controller`) has the metrics of every node, a
broker has all. Those of the controller are at the node that is it.

A scrape reads counters that are plain numbers in the node. The process's own metrics are there
too: `process_resident_memory_bytes`, `process_virtual_memory_bytes`,
`process_cpu_seconds_total`, `process_open_fds`, `process_max_fds`, `process_start_time_seconds`.

`packaging/prometheus/alerts.yaml` has alert rules: disks, failed log directories, a cleaner that
has ended or cannot clean a partition, dirty bytes that pile up, replicas that lag, jobs of
`cordwood clean` and `verify` that have not run or failed. Each alert names the command that comes
next. `packaging/grafana/cordwood.json` is a dashboard for Grafana.
"""

CLEAN_INTRODUCTION = """
## Jobs: `cordwood clean`

`cordwood clean --metrics-textfile FILE.prom` writes these at its end, also if it failed, for the
textfile collector of Prometheus' node exporter: the file is replaced at once. `log_dirs` are the
directories as they were given, comma separated, so that several jobs may each have a file. A topic
has values if the run has read it.

"""

VERIFY_INTRODUCTION = """
## Jobs: `cordwood verify`

`cordwood verify --metrics-textfile FILE.prom` writes these in the same way, also with `--cleaning`.

"""

EXPLAIN_INTRODUCTION = """
## Jobs: `cordwood explain`

`cordwood explain LOG_DIR --metrics-textfile FILE.prom` writes its summary in the same way: how much
goes, and when. A broker of Cordwood needs no job, it has metrics of its own.

"""

NOT_SERVED = """\
## Not served

Of the MBeans of a Kafka 4.3 these are missing, since there is nothing here that they would
measure:

- request queues, handler and network threads and how idle they are, the parts of a request's
  time, memory pools: requests are answered one after the other, by one thread
- clients' quotas, and channels of a controller to brokers
- share and streams groups, tiered storage, client telemetry, authentication

And these, although there is: fetchers, bytes of replication and of reassignments, and the rates
that are throttled; errors by request (`RequestMetrics,name=ErrorsPerSec`), sizes of
requests, bytes by listener, `linux-disk-read-bytes` and `-write-bytes`,
`PartitionsWithLateTransactionsCount`, ages and sizes of metadata snapshots, and
`remainingLogsToRecover`, since nothing answers before logs are recovered; `cordwood serve` logs
its progress.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, metrics in TABLE:
        parts.append(f"\n## {title}\n\n")
        parts += _table(metrics)
    parts.append(CLEAN_INTRODUCTION)
    parts += _table(CLEAN)
    parts.append(VERIFY_INTRODUCTION)
    parts += _table(VERIFY)
    parts.append(EXPLAIN_INTRODUCTION)
    parts += _table(EXPLAIN)
    return "".join([*parts, "\n", NOT_SERVED])


def _table(metrics: Iterable[Metric[Any]]) -> Iterable[str]:
    yield _row(("metric", "Kafka's MBean", "kind", "description"))
    yield _row(("---",) * 4)
    yield from (_row(_cells(metric)) for metric in metrics)


def _cells(metric: Metric[Any]) -> Iterable[str]:
    labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
    kafka = f"`{metric.kafka_name}`" if metric.mbean else "none"
    return f"`{metric.name}{labels}`", kafka, metric.type.value, metric.help


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
