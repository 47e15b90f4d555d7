"""Changes of configs in the metadata log, and the checks that the controller makes.

Source: org.apache.kafka.controller.ConfigurationControlManager; KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.configs.min_isr import MIN_ISR, require_min_isr_may_change
from cordwood.configs.resource import ConfigChange, ConfigResource
from cordwood.controller.cluster_view import RECORDS_MAX, ClusterView
from cordwood.controller.topics import clear_elr_record
from cordwood.metadata.records import Records, config_record, has_elr
from cordwood.model.kafka_errors import InvalidConfigError, KafkaError, PolicyViolationError
from cordwood.model.pauses import in_steps

_VALUE_BYTES_MAX = 32767


def alter_configs(
    view: ClusterView, changes: Sequence[ConfigChange]
) -> tuple[Records, list[KafkaError | None]]:
    """The records for changed configs, and the error of each resource that is refused.

    Raises:
        PolicyViolationError: the change needs more than 10,000 records.
    """
    records: Records = []
    results: list[KafkaError | None] = []
    for change in in_steps(changes):
        try:
            records += _records_of(view, change)
        except KafkaError as error:
            results.append(error)
        else:
            results.append(None)
    if has_elr(view.image.features):
        records += _clear_eligible(records)
    if len(records) > RECORDS_MAX:
        raise PolicyViolationError("Unable to perform excessively large batch operation.")
    return records, results


def _records_of(view: ClusterView, change: ConfigChange) -> Records:
    current = view.image.configs.get((change.resource_type, change.name), {})
    if change.resource_type == ConfigResource.BROKER:
        has_eligible = has_elr(view.image.features)
        require_min_isr_may_change(change.name, change.values, has_elr=has_eligible)
    records: Records = []
    for key, value in change.values.items():
        if value is not None and len(value.encode()) > _VALUE_BYTES_MAX:
            raise InvalidConfigError(
                "The configuration value cannot be added because it exceeds the maximum value "
                "size of 32767 bytes."
            )
        # A broker that gets the same setting again reads the setting's files again.
        if current.get(key) != value or (
            change.resource_type == ConfigResource.BROKER and value is not None
        ):
            records.append(config_record(change.resource_type, change.name, key, value))
    return records


def _clear_eligible(records: Records) -> Records:
    """A change of min.insync.replicas clears the eligible leader replicas."""
    cleared: Records = []
    for record in records:
        if record.fields["name"] != MIN_ISR:
            continue
        if record.fields["resourceType"] == ConfigResource.TOPIC:
            cleared.append(clear_elr_record(record.fields["resourceName"]))
        elif record.fields["resourceType"] == ConfigResource.BROKER:
            cleared.append(clear_elr_record(""))
    return cleared
