"""What goes while `reconcile --local` works: it is named, the command is typed again, and the flow goes on."""

from __future__ import annotations

from typing import Any

import pytest

from cli import main
from integration_tests.conftest import MakeCopying
from integration_tests.harness import clients
from integration_tests.harness.advised import advised
from integration_tests.harness.two_topics import TwoTopics, numbered
from integration_tests.test_incidents_played import asked, open_id
from replicator.proof import local

pytestmark = pytest.mark.tier("long", kafka="long")


def test_a_topic_that_was_created_again_while_it_is_compared_is_named_and_the_flow_goes_on(
    make_copying: MakeCopying, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """topic_gone: reconcile again says that the target topic is another one, and that is decided about."""
    two = TwoTopics(make_copying(partitions=1))
    two.assert_stops(two.running(10), 0)
    compared = local.reconcile_local

    def created_again_first(*arguments: Any, **how: Any) -> Any:
        clients.recreate_topic(two.target, two.copy_of(two.first), 1)
        return compared(*arguments, **how)

    command = ["reconcile", "--local", "-c", str(two.flow.file.path), "--json"]
    with monkeypatch.context() as patched:
        patched.setattr("replicator.proof.local.reconcile_local", created_again_first)
        code = main.invoke(command)
    said = capsys.readouterr()
    assert (code, "topic_gone" in said.out + said.err) == (4, True), said

    code, found, err = asked(two.flow, "reconcile", "--local")
    assert (code, [it["name"] for it in found["not_compared"]]) == (4, ["target_topic_recreated"]), (found, err)
    worker = two.flow.running()
    id_ = open_id(two.flow, "target_topic_recreated", two.first, worker)
    advice = asked(two.flow, "incident", "show", id_)[1]["advice"]
    code, done, err = asked(two.flow, *advised(advice, "incident resolve"))
    assert (code, done["acted"]) == (0, "restarted"), err
    two.put(two.first, [b"goes on"])
    two.wait_copied(two.first, b"goes on")
    assert two.values(two.first) == [*numbered("old", 10), b"goes on"]
    two.assert_second_goes_on()
    two.assert_stops(worker, 0)
    code, found, err = asked(two.flow, "reconcile", "--local")
    assert (code, found["verdict"], found["not_compared"]) == (0, "agrees", []), (found, err)
