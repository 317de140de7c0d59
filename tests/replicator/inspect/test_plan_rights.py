"""Which rights are known to be missing, by what a cluster tells."""

from __future__ import annotations

import pytest

from replicator.flow.topic_rules import ListedTopic
from replicator.inspect.plan_rights import missing_on_topic
from replicator.kafka.topic_questions import TopicInfo
from replicator.model.errors import NotAllowed

DENIED = NotAllowed("denied")
NEEDED = ("Describe", "DescribeConfigs", "Read", "Write")


def info(*rights: str) -> TopicInfo:
    return TopicInfo("t", "id", 1, rights=frozenset(rights))


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (ListedTopic(), []),  # there is no such topic
        (ListedTopic(TopicInfo("t", "id", 1)), []),  # it was not asked for
        (ListedTopic(info(*NEEDED)), []),
        (ListedTopic(info("Describe", "Read"), DENIED), ["DescribeConfigs", "Write"]),
        (ListedTopic(None, DENIED), ["Describe", "Read", "Write"]),
        (ListedTopic(None, DENIED, configs_denied=True), [*NEEDED]),
    ],
)
def test_what_includes_describe_is_missing_where_that_is(found: ListedTopic, missing: list[str]) -> None:
    assert missing_on_topic(found, NEEDED) == missing


def test_a_topic_that_may_not_be_seen_lacks_describe_whatever_is_needed() -> None:
    assert missing_on_topic(ListedTopic(None, DENIED), ("Write",)) == ["Describe", "Write"]
