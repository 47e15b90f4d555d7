"""The rule of min.insync.replicas where eligible leader replicas are recorded (KIP-966).

Source: org.apache.kafka.controller.ConfigurationControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cordwood.model.kafka_errors import InvalidConfigError

MIN_ISR: Final = "min.insync.replicas"


def require_min_isr_may_change(
    broker: str, changes: Mapping[str, str | None], *, has_elr: bool
) -> None:
    """Checks changes of the settings of brokers: with ELR, the setting is the cluster's alone.

    Args:
        broker: the id of a broker, or "" for the settings of all.
        changes: new values by setting; None removes a setting.
        has_elr: whether eligible leader replicas are recorded.

    Raises:
        InvalidConfigError: the setting may not be changed so.
    """
    if MIN_ISR not in changes or not has_elr:
        return
    if broker:
        raise InvalidConfigError(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    if changes[MIN_ISR] is None:
        raise InvalidConfigError(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
