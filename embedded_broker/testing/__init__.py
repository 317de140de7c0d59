"""A Kafka broker for tests: real, durable, started in a moment, and broken on purpose.

    from embedded_broker.testing import KafkaBroker

    with KafkaBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

pytest finds the fixture `kafka_broker` by itself. See docs/testing-with-the-broker.md.
"""

from embedded_broker.testing.handle import KafkaBroker
from embedded_broker.testing.runner import BrokerDied
from embedded_broker.testing.switches import Fault, FaultSwitches

__all__ = ["BrokerDied", "Fault", "FaultSwitches", "KafkaBroker"]
