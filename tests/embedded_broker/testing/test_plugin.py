"""The pytest plugin as a user's tests meet it: found by itself, told how by marker, option or setting."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.tier("extended")  # runs pytest and brokers in processes

pytest_plugins = ["pytester"]

RUNNER = """
def mode(broker):
    return type(broker._runner).__name__
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A user's directory with a module that tells how a broker is run."""
    pytester.makepyfile(runner=RUNNER)
    return pytester


def test_each_test_gets_a_broker_of_its_own_with_nothing_in_it(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        gone = []

        def write(broker):
            topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).topics
            assert not [name for name in topics if not name.startswith("__")]
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("t", b"v")
            assert producer.flush(20) == 0
            gone.append(broker)

        def test_one(kafka_broker):
            write(kafka_broker)

        def test_two(kafka_broker):
            assert not gone[0].alive() and not gone[0].directory.exists()
            write(kafka_broker)
        """
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_marker_option_and_setting_say_how_it_is_run(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest
        from runner import mode

        def test_runs_in_the_configured_mode(kafka_broker, request):
            assert mode(kafka_broker) == "ProcessRunner"

        @pytest.mark.kafka_broker(mode="thread", settings={"num.partitions": "3"})
        def test_marked(kafka_broker):
            from confluent_kafka import Producer
            assert mode(kafka_broker) == "ThreadRunner"
            producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
            producer.produce("t", b"v")
            assert producer.flush(20) == 0
            assert len(producer.list_topics("t", timeout=20).topics["t"].partitions) == 3
        """
    )
    project.runpytest_subprocess("--kafka-broker", "process", "--strict-markers").assert_outcomes(passed=2)
    project.makeini("[pytest]\nkafka_broker = process\n")
    project.runpytest_subprocess("--strict-markers").assert_outcomes(passed=2)


def test_the_marker_wants_names(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.kafka_broker("process")
        def test_marked(kafka_broker):
            pass
        """
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kafka_broker takes its arguments by their names*"])


def test_a_test_that_fails_shows_the_brokers_log(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from confluent_kafka.admin import AdminClient

        def test_fails(kafka_broker):
            AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "client.id": "me"}).list_topics(timeout=20)
            assert False

        def test_passes(kafka_broker):
            pass
        """
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*kafka_broker log*", "*connected*me*"])


def test_tests_without_the_fixture_load_nothing_of_the_broker(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_none():
            assert "embedded_broker.testing.plugin" in sys.modules
            assert not {"embedded_broker.net.server", "kio", "confluent_kafka"} & set(sys.modules)
        """
    )
    project.runpytest_subprocess().assert_outcomes(passed=1)
