"""The topic that workers share out is deleted while they run."""

from __future__ import annotations

import pytest

from integration_tests.conftest import MakeCopying
from integration_tests.exactly_once.test_workers import SESSION_MS, crew_of
from integration_tests.harness import clients
from integration_tests.harness.broker import BrokerHandle
from integration_tests.harness.crew import LANES
from replicator.model.names import lanes_topic


@pytest.mark.tier("long", kafka="long")
def test_a_lanes_topic_that_somebody_deleted_is_made_again(make_copying: MakeCopying, target: BrokerHandle) -> None:
    """Without it nobody is a member of the group, and the lanes of a worker that dies would be nobody's."""
    crew = crew_of(make_copying, target, limits={"session_timeout_ms": SESSION_MS[target.kind]})
    topic = lanes_topic(crew.copying.name, LANES)
    with crew.copying.writing():
        first, second = crew.join(), crew.join()
        crew.wait_shared()
        client = clients.admin(crew.copying.target)
        client.delete_topics([topic])[topic].result(clients.TIMEOUT_S)
        mark = second.mark()
        crew.kill(first)
        second.wait_event("lanes_assigned", after=mark, lanes=list(range(LANES)))
    crew.finish()
