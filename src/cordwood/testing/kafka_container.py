"""`KafkaContainer` of testcontainers, for tests without Docker: the same names, in this process.

    from cordwood.testing.kafka_container import KafkaContainer

    with KafkaContainer() as kafka:
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})

What needs a container is missing: networks, volumes, commands, files and logs of the container.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cordwood.model.errors import ConfigError
from cordwood.testing.broker import RunningBroker
from cordwood.testing.callers_line import shows_callers_line
from cordwood.testing.setting_text import SettingValue

_HOST: Final = "127.0.0.1"
_PREFIX: Final = "KAFKA_"
#: Variables of the images that say how the container listens, finds its quorum, or runs Java.
_OF_CONTAINER: Final = frozenset(
    {
        "KAFKA_ADVERTISED_LISTENERS",
        "KAFKA_BROKER_ID",
        "KAFKA_CLUSTER_ID",
        "KAFKA_CONTROLLER_LISTENER_NAMES",
        "KAFKA_CONTROLLER_QUORUM_VOTERS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_INTER_BROKER_LISTENER_NAME",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_OPTS",
        "KAFKA_JMX_PORT",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_LISTENERS",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_TOOLS_ROOT_LOGLEVEL",
        "KAFKA_LOG_DIRS",
        "KAFKA_NODE_ID",
        "KAFKA_OPTS",
        "KAFKA_PROCESS_ROLES",
        "KAFKA_ZOOKEEPER_CONNECT",
    }
)


class KafkaContainer:
    """A broker with the methods of testcontainers' class, and those of `RunningBroker` in `broker`.

    `image` is not used. `port` is the port that a container would expose: it names the listener in
    `get_exposed_port` and `with_bind_ports`, and the broker listens on any free port of 127.0.0.1.
    """

    def __init__(
        self, image: str = "cordwood", port: int = 9093, *, env: Mapping[str, str] | None = None
    ) -> None:
        """Starts nothing; `env` is as of `with_envs`."""
        self.image = image
        self.port = port
        self.env: dict[str, str] = dict(env or {})
        self._bound_port = 0
        self._broker: RunningBroker | None = None

    # ---- before the start

    def with_env(self, key: str, value: str) -> Self:
        """Sets a variable as the images of Kafka take it: `KAFKA_NUM_PARTITIONS=3`.

        Variables of the container itself, such as `KAFKA_LISTENERS`, have no effect.
        """
        self.env[key] = value
        return self

    def with_envs(self, **variables: str) -> Self:
        """`with_env` for each."""
        self.env.update(variables)
        return self

    def with_env_file(self, env_file: str | Path) -> Self:
        """`with_env` for each line `KEY=VALUE` of a file; empty lines and comments are ignored.

        A value may be in quotes. `${OTHER}` in a value is not replaced.

        Raises:
            ConfigError: the file cannot be read, or a line has no `=`.
        """
        try:
            lines = Path(env_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{env_file}: cannot be read: {error}") from error
        for number, line in enumerate(map(str.strip, lines), start=1):
            if line and not line.startswith("#"):
                key, found, value = line.removeprefix("export ").partition("=")
                if not found:
                    raise ConfigError(f"{env_file}:{number}: KEY=VALUE is expected, not {line}")
                value = value.strip()
                if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                    value = value[1:-1]
                self.env[key.strip()] = value
        return self

    def with_kraft(self) -> Self:
        """Changes nothing: the broker has no ZooKeeper."""
        return self

    def with_exposed_ports(self, *ports: int) -> Self:
        """Changes nothing: the one port is always reachable."""
        return self

    def with_bind_ports(self, container: int | str, host: int | str | None = None) -> Self:
        """Has the broker listen on the port `host`, if `container` is its `port`.

        Raises:
            ConfigError: `container` is another port.
        """
        if int(str(container).partition("/")[0]) != self.port:
            raise ConfigError(f"the broker has the port {self.port} alone, not {container}")
        self._bound_port = int(host or 0)
        return self

    # ---- life

    @shows_callers_line
    def start(self, timeout: float = 30) -> Self:
        """Starts the broker, with an empty log directory; one that runs stays as it is.

        Args:
            timeout: has no effect; a start takes less than a second.

        Raises:
            UnknownSettingError: a variable begins with `KAFKA_` and names no setting.
            ConfigError: Kafka would refuse a setting's value.
            CordwoodError: it cannot start; nothing is left of the attempt.
        """
        if self._broker is None:
            self._broker = RunningBroker(properties_of(self.env), port=self._bound_port).start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stops the broker, and removes its log directory. The arguments have no effect."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def __enter__(self) -> Self:
        __tracebackhide__ = True
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # ---- use

    @property
    def broker(self) -> RunningBroker:
        """The broker, whose clock a test advances: `kafka.broker.advance(days=7)`.

        Raises:
            RuntimeError: it does not run.
        """
        __tracebackhide__ = True
        if self._broker is None:
            raise RuntimeError(
                "the KafkaContainer does not run: use it in a `with` statement, or call start()"
            )
        return self._broker

    def get_bootstrap_server(self) -> str:
        """The bootstrap servers for clients."""
        __tracebackhide__ = True
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """The host that the broker listens on."""
        return _HOST

    def get_exposed_port(self, port: int) -> int:
        """The port that the broker listens on; `port` is that of the container."""
        __tracebackhide__ = True
        return self.broker.port


def properties_of(env: dict[str, str]) -> dict[str, SettingValue]:
    """The settings of server.properties that variables of a container stand for.

    `_` is a dot, `__` an underscore and `___` a dash, as in the images of Kafka. Variables that do
    not begin with `KAFKA_`, and those of the container itself, are left out.
    """
    found: dict[str, SettingValue] = {}
    for key, value in env.items():
        if key.startswith(_PREFIX) and key not in _OF_CONTAINER:
            name = key.removeprefix(_PREFIX).lower()
            name = name.replace("___", "-").replace("__", "\0").replace("_", ".")
            found[name.replace("\0", "_")] = str(value)
    return found
