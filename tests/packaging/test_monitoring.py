"""Alert rules and the dashboard of packaging/: every expression is PromQL of metrics there are."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from cordwood.surfaces.cli.main import _OWN
from cordwood.surfaces.cli.tools.table import TOOLS
from cordwood.surfaces.metrics.jobs import CLEAN, VERIFY
from cordwood.surfaces.metrics.metric import Metric
from cordwood.surfaces.metrics.table import METRICS

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"
RULES = yaml.safe_load((PACKAGING / "prometheus/alerts.yaml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD: dict[str, Any] = json.loads((PACKAGING / "grafana/cordwood.json").read_text("utf-8"))

#: Of others: Prometheus' own, the node exporter's, and those of kube-state-metrics.
OTHERS = {
    "up",
    "node_filesystem_avail_bytes",
    "node_filesystem_size_bytes",
    "kube_cronjob_status_last_successful_time",
}
METRICS_OF_ALL: list[Metric[Any]] = [*METRICS, *CLEAN, *VERIFY]
SERVED = {metric.name: set(metric.labels) for metric in METRICS_OF_ALL}
#: Labels that Prometheus adds, that of a summary, and those of the others.
ADDED = {"instance", "job", "quantile", "fstype", "mountpoint", "cronjob", "namespace"}


def expressions() -> Iterator[tuple[str, str]]:
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def selectors(node: Any) -> Iterator[Any]:
    """The selectors of metrics in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    else:
        for name in ("expr", "lhs", "rhs", "param"):
            if getattr(node, name, None) is not None:
                yield from selectors(getattr(node, name))
        for each in getattr(node, "args", None) or ():
            yield from selectors(each)


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_an_expression_is_of_metrics_and_labels_that_there_are(name: str, expression: str) -> None:
    found = list(selectors(promql_parser.parse(expression)))
    assert found, name
    for selector in found:
        assert selector.name in SERVED.keys() | OTHERS, f"{name}: nothing serves {selector.name}"
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert labels <= SERVED.get(selector.name, set()) | ADDED, f"{name}: {selector.name}"


def test_an_alert_says_how_bad_it_is_what_is_the_matter_and_what_to_do() -> None:
    names = [alert["alert"] for alert in ALERTS]
    assert len(set(names)) == len(names)
    for alert in ALERTS:
        assert alert["labels"]["severity"] in {"warning", "critical"}, alert["alert"]
        assert set(alert["annotations"]) == {"summary", "action"}, alert["alert"]
        for label in re.findall(r"\$labels\.(\w+)", json.dumps(alert["annotations"])):
            (metrics, *_) = (each.name for each in selectors(promql_parser.parse(alert["expr"])))
            assert label in SERVED.get(metrics, set()) | ADDED, alert["alert"]


def test_an_alert_names_commands_that_there_are() -> None:
    actions = " ".join(alert["annotations"]["action"] for alert in ALERTS)
    named = set(re.findall(r"cordwood ([a-z][a-z-]+)", actions))
    assert {"clean", "doctor", "cleaner"} <= named <= _OWN.keys() | TOOLS.keys()


def test_the_alerts_are_about_what_an_operator_is_woken_for() -> None:
    metrics = {
        each.name for alert in ALERTS for each in selectors(promql_parser.parse(alert["expr"]))
    }
    assert metrics >= {
        "node_filesystem_avail_bytes",
        "kafka_log_logcleaner_deadthreadcount",
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "cordwood_cleaner_due_bytes",
        "kafka_log_logmanager_offlinelogdirectorycount",
        "kafka_server_replicamanager_underreplicatedpartitions",
        "cordwood_clean_last_success_timestamp_seconds",
    }


def _matched(metric: str, label: str) -> set[str]:
    """The values that the alerts require of a label of a metric."""
    return {
        matcher.value
        for alert in ALERTS
        for each in selectors(promql_parser.parse(alert["expr"]))
        if each.name == metric
        for matcher in each.matchers.matchers
        if matcher.name == label
    }


def test_the_jobs_that_the_alerts_ask_for_are_those_that_ship() -> None:
    compose = PACKAGING / "compose"
    prometheus = yaml.safe_load((compose / "prometheus.yml").read_text(encoding="utf-8"))
    assert _matched("up", "job") == {each["job_name"] for each in prometheus["scrape_configs"]}
    cron_job = yaml.safe_load((PACKAGING / "kubernetes/clean.yaml").read_text(encoding="utf-8"))
    named = _matched("kube_cronjob_status_last_successful_time", "cronjob")
    assert named == {cron_job["metadata"]["name"]}


def test_the_prometheus_of_compose_loads_the_alerts() -> None:
    compose = PACKAGING / "compose"
    prometheus = yaml.safe_load((compose / "prometheus.yml").read_text(encoding="utf-8"))
    services = yaml.safe_load((compose / "compose.yaml").read_text(encoding="utf-8"))["services"]
    mounted = {
        Path(inside): (compose / here).resolve()
        for here, inside, _ in (
            each.split(":") for each in services["prometheus"]["volumes"] if each.endswith(":ro")
        )
    }
    (rules,) = prometheus["rule_files"]
    assert mounted[Path("/etc/prometheus") / rules] == PACKAGING / "prometheus/alerts.yaml"


def test_the_service_that_cleans_writes_metrics_that_others_may_read() -> None:
    text = (PACKAGING / "systemd/cordwood-clean.service").read_text(encoding="utf-8")
    unit = dict(re.findall(r"(?m)^(\w+)=(.+)$", text))
    (file,) = re.findall(r"--metrics-textfile (\S+)", unit["ExecStart"])
    assert Path(file).parent == Path("/var/lib") / unit["StateDirectory"]
    assert (unit["StateDirectoryMode"], unit["UMask"]) == ("0755", "0022")


def test_a_cleaner_that_is_off_or_busy_is_not_one_that_is_idle_for_too_long() -> None:
    (alert,) = [each for each in ALERTS if each["alert"] == "KafkaLogCleanerIdleTooLong"]
    expression = promql_parser.parse(alert["expr"])
    assert isinstance(expression, promql_parser.BinaryExpr)
    assert str(expression.op) == "and"
    assert [each.name for each in selectors(expression)] == [
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "cordwood_cleaner_idle_threads",
    ]


def test_panels_of_the_dashboard_do_not_overlap_and_are_in_the_grid() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    sources = {
        json.dumps(each["datasource"])
        for panel in DASHBOARD["panels"]
        for each in itertools.chain([panel], panel["targets"])
    }
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
