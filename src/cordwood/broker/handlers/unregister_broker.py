"""UnregisterBroker (64), version 0: a broker that will not come back is forgotten.

Source: org.apache.kafka.controller.QuorumController.unregisterBroker; KIP-631.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response, always
from cordwood.broker.handlers.error_fields import error_fields
from cordwood.model.kafka_errors import KafkaError

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """As in Kafka, this broker as well: it then has to be started again."""
    try:
        broker.controller.unregister_broker(request.broker_id)
    except KafkaError as error:
        return error_fields(error)
    return error_fields(None)


API = Api(64, "UnregisterBroker", 0, 0, handle, is_long=always)
