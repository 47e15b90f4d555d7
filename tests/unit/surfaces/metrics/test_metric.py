"""Names of metrics: those that the rules for Kafka's MBeans make, of MBeans that Kafka has."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from cordwood.surfaces.metrics.metric import Metric, MetricType, prometheus_name
from cordwood.surfaces.metrics.table import METRICS

ROOT = Path(__file__).resolve().parents[4]
RECORDED = Path(__file__).parent / "kafka_4_3_mbeans.txt"


@pytest.mark.parametrize(
    ("mbean", "name"),
    [
        (
            "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
            "kafka_server_brokertopicmetrics_messagesin_total",
        ),
        (
            "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
            "kafka_server_replicamanager_underreplicatedpartitions",
        ),
        (
            "kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
            "kafka_log_logcleaner_cleaner_recopy_percent",
        ),
        (
            "kafka.network:type=RequestMetrics,name=TotalTimeMs",
            "kafka_network_requestmetrics_totaltimems",
        ),
        (
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ),
        (
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
        ),
    ],
)
def test_a_name_is_that_of_the_exporters_rules(mbean: str, name: str) -> None:
    assert prometheus_name(mbean) == name


def test_no_two_metrics_have_the_same_name() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_is_one_that_prometheus_takes(metric: Metric[Any]) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.type is MetricType.COUNTER)
    assert metric.help.endswith(".")


def test_every_mbean_is_one_of_a_real_kafka() -> None:
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    recorded = {line for line in lines if not line.startswith("#")}
    assert len(recorded) > 200
    for metric in METRICS:
        if metric.mbean:
            # Kafka has those by topic only once there is something to count.
            names = {metric.kafka_name, metric.kafka_name.replace(",topic=*", "")}
            # Averages are left out of the recording; Kafka has each beside a maximum.
            names |= {each.replace("-avg", "-max") for each in names}
            assert names & recorded, metric.kafka_name


def test_all_that_kafka_says_of_logs_and_their_cleaner_is_served() -> None:
    served = {metric.kafka_name for metric in METRICS}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        if line.startswith("kafka.log:"):
            assert line in served


def test_the_page_of_metrics_is_that_of_the_table() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "metrics_doc.py"))
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == tool["page"](), "run python tools/metrics_doc.py"
