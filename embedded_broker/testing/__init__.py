"""A Kafka broker for tests: durable, started within milliseconds, with fault injection.

    from embedded_broker.testing import KafkaBroker

    with KafkaBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})

pytest loads the fixture `kafka_broker` as a plugin. See docs/testing-with-the-broker.md.
"""

from embedded_broker.testing.fault_injection import Fault, FaultInjector
from embedded_broker.testing.handle import KafkaBroker
from embedded_broker.testing.runner import BrokerDied

__all__ = ["BrokerDied", "Fault", "FaultInjector", "KafkaBroker"]
