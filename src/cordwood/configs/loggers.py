"""The levels of a broker's loggers: changed at run time, kept in memory only.

Tools use the logger names of Kafka's classes. A name with a counterpart here sets the level of that
part of Cordwood; the others accept a level without effect. Cordwood's own loggers are listed too,
by their Python names.

Source: kafka.server.logger.RuntimeLoggerManager, org.apache.kafka.server.logger.LoggingController,
Kafka 4.3; KIP-412, KIP-653.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cordwood.model.kafka_errors import InvalidConfigError, InvalidRequestError

ROOT: Final = "root"
_PYTHON_ROOT: Final = "cordwood"
_OPERATIONS: Final = {2: "APPEND", 3: "SUBTRACT"}
_SET, _DELETE = 0, 1
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG // 2,
    "WARN": logging.WARNING,
}
_COUNTERPARTS: Final[Mapping[str, str]] = {
    "kafka.cluster.Partition": "cordwood.broker.partition",
    "kafka.coordinator.transaction.TransactionCoordinator": "",
    "kafka.log.LogCleaner": "cordwood.cleanup.schedule.log_cleaner",
    "kafka.log.LogManager": "cordwood.storage.log_manager",
    "kafka.network.ConnectionQuotas": "",
    "kafka.network.DataPlaneAcceptor": "cordwood.serving.server",
    "kafka.network.Processor": "cordwood.serving.connection",
    "kafka.network.RequestChannel$": "",
    "kafka.network.SocketServer": "cordwood.serving.server",
    "kafka.request.logger": "cordwood.serving.dispatch",
    "kafka.server.BrokerServer": "cordwood.node.node",
    "kafka.server.ConfigAdminManager": "cordwood.configs.alter",
    "kafka.server.ControllerApis": "",
    "kafka.server.ControllerServer": "cordwood.controller",
    "kafka.server.KafkaApis": "cordwood.broker.handlers",
    "kafka.server.KafkaConfig": "cordwood.configs.server_properties",
    "kafka.server.KafkaRaftServer": "cordwood.node.node",
    "kafka.server.KafkaRequestHandler": "cordwood.serving.dispatch",
    "kafka.server.ReplicaFetcherManager": "",
    "kafka.server.ReplicaManager": "cordwood.broker.broker",
    "kafka.server.SharedServer": "",
    "kafka.server.metadata.BrokerMetadataPublisher": "cordwood.broker.metadata_publisher",
    "kafka.server.metadata.DynamicConfigPublisher": "cordwood.configs.effective",
    "org.apache.kafka.clients.NetworkClient": "",
    "org.apache.kafka.controller.ConfigurationControlManager": "",
    "org.apache.kafka.controller.QuorumController": "cordwood.controller.controller",
    "org.apache.kafka.controller.ReplicationControlManager": "cordwood.controller.topics",
    "org.apache.kafka.coordinator.group.GroupCoordinatorService": "cordwood.coordinator",
    "org.apache.kafka.raft.KafkaRaftClient": "",
    "org.apache.kafka.server.FetchManager": "cordwood.broker.fetch_sessions",
    "org.apache.kafka.server.quota.ClientQuotaManager": "",
    "org.apache.kafka.storage.internals.log.Cleaner": "cordwood.cleanup",
    "org.apache.kafka.storage.internals.log.LogCleaner": "cordwood.cleanup.schedule.log_cleaner",
    "org.apache.kafka.storage.internals.log.LogLoader": "cordwood.storage",
    "org.apache.kafka.storage.internals.log.LogManager": "cordwood.storage.log_manager",
    "org.apache.kafka.storage.internals.log.ProducerStateManager": "",
    "org.apache.kafka.storage.internals.log.UnifiedLog": "cordwood.storage.log",
    "state.change.logger": "",
}


class LoggerLevels:
    """The levels set by requests; a logger without one has its parent's, finally root's."""

    def __init__(self) -> None:
        self._levels: dict[str, str] = {ROOT: "INFO"}

    def all(self) -> dict[str, str]:
        """The level of each logger there is, by name."""
        return {name: self._level(name) for name in self._names()}

    def require_change(self, name: str, level: str | None, operation: int) -> None:
        """Checks one change; `operation` is that of IncrementalAlterConfigs.

        Raises:
            InvalidConfigError: no such logger, or no such level.
            InvalidRequestError: the operation is not possible for it.
        """
        if operation in _OPERATIONS:
            raise InvalidRequestError(
                f"{_OPERATIONS[operation]} operation is not allowed for the BROKER_LOGGER resource"
            )
        if operation not in {_SET, _DELETE}:
            raise InvalidRequestError(
                f"Unknown operation type {operation} is not allowed for the BROKER_LOGGER resource"
            )
        if name not in self._names():
            raise InvalidConfigError(f"Logger {name} does not exist!")
        if operation == _SET and level not in LEVELS:
            raise InvalidConfigError(
                f"Cannot set the log level of {name} to {level} as it is not a supported log "
                f"level. Valid log levels are {', '.join(sorted(LEVELS))}"
            )
        if operation == _DELETE and name == ROOT:
            raise InvalidRequestError("Removing the log level of the root logger is not allowed")

    def change(self, name: str, level: str | None) -> None:
        """Sets the level of a logger, None takes it away; `require_change` was asked before."""
        if level is None:
            self._levels.pop(name, None)
        else:
            self._levels[name] = level
        counterpart = _PYTHON_ROOT if name == ROOT else _COUNTERPARTS.get(name, name)
        if counterpart:
            logging.getLogger(counterpart).setLevel(
                logging.NOTSET if level is None else LEVELS[level]
            )

    def _names(self) -> list[str]:
        own = (
            name
            for name, logger in logging.Logger.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and name.split(".")[0] == _PYTHON_ROOT
        )
        return sorted({ROOT, *_COUNTERPARTS, *own})

    def _level(self, name: str) -> str:
        while name:
            if name in self._levels:
                return self._levels[name]
            name = name.rpartition(".")[0]
        return self._levels[ROOT]
