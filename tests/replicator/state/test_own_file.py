"""Settings in a generation: who runs what, whatever its own file says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from replicator.config import Flow, load_text
from replicator.state.control import Proposal, fits, handing_back, keeping
from replicator.state.control_topic import Control
from replicator.state.generation import Generation, Kind, LaneAssignment, Phase, decode
from replicator.state.own_file import UnknownSettings, followed, lanes_wanted, open_settings, own_file
from replicator.workers.settings import OpenSettings, OwnFile, Runs, differences

FILE = """
clusters:
  {here}: {{properties: {{bootstrap.servers: "{servers}"}}}}
  east: {{properties: {{bootstrap.servers: "b:9092"}}}}
flows:
  orders: {{source: {here}, target: east, topics: [orders, "^pay.*"], {more}}}
"""


def flow(more: str = "", here: str = "west", servers: str = "a:9092") -> Flow:
    return load_text(FILE.format(more=more, here=here, servers=servers), env={}).flows["orders"]


def opened(own: OwnFile | None, lanes: int = 1, kind: Kind = Kind.LIVE, before: Control | None = None) -> Control:
    control = before or Control()
    control = control.apply(control.prepare(LaneAssignment(lanes), {"orders": 2}, 1, kind, "somebody", own))
    for record in control.finish(2):
        control = control.apply(record)
    return control


def generation(
    own: OwnFile | None, lanes: int = 1, kind: Kind = Kind.LIVE, before: Control | None = None
) -> Generation:
    found = opened(own, lanes, kind, before).open
    assert found is not None
    return found


MORE = (
    "lanes: 3, delivery: at_least_once, start: 2026-01-31T12:00:00Z, commit: {interval_ms: 7}, exclude: [pays], "
    "revision: 2"
)


def test_a_generation_keeps_settings_over_its_record() -> None:
    made = generation(own_file(flow(MORE)), 3)
    assert decode(made.key, made.encode()) == made
    assert made.revision == 2
    assert made.settings_hash == own_file(flow(MORE)).hash != own_file(flow()).hash
    assert json.loads(made.encode())["settings"]["commit"] == {"interval_ms": 7}
    assert "revision" not in json.loads(made.settings)


def test_a_program_that_knows_no_settings_must_not_run_such_a_flow() -> None:
    assert json.loads(generation(own_file(flow())).encode())["v"] == 2
    assert json.loads(generation(None).encode())["v"] == 1
    assert "settings" not in json.loads(generation(None).encode())


def test_secrets_and_addresses_stay_out_of_it() -> None:
    text = own_file(flow(servers="secret-host:9092")).settings
    assert "secret" not in text
    assert json.loads(text)["source"] == "west"


def test_a_worker_with_another_file_runs_all_of_the_open_one_but_its_connections() -> None:
    own = flow("lanes: 1, rename: 'x.{topic}'", here="w", servers="other:1")
    found = followed(own, generation(own_file(flow(MORE)), 3))
    theirs = flow(MORE)
    assert {
        name: getattr(found, name) for name in type(found).model_fields if name not in ("source", "target", "revision")
    } == {
        name: getattr(theirs, name) for name in type(found).model_fields if name not in ("source", "target", "revision")
    }
    assert found.source.properties == own.source.properties
    assert found.source.name == "west", "the name is part of the target topics' names"


def test_a_worker_with_the_same_file_runs_its_own() -> None:
    own = flow(MORE)
    assert followed(own, generation(own_file(own), 3)) is own


def test_the_generation_has_the_last_word_on_lanes() -> None:
    assert followed(flow("lanes: 2"), generation(own_file(flow("lanes: 2")), 5)).lanes == 5
    assert followed(flow("lanes: 2"), generation(None, 5)).lanes == 5
    assert followed(flow("lanes: 2"), generation(own_file(flow("lanes: 2")), 5, Kind.BACKFILL)).lanes == 2


@pytest.mark.parametrize("settings", [{"teleport": True}, {"delivery": "twice"}, {"commit": {"never": 1}}])
def test_settings_of_a_newer_version(settings: dict[str, Any]) -> None:
    newer = json.dumps({**json.loads(own_file(flow()).settings), **settings})
    control = opened(OwnFile(hash="", settings=newer))
    assert control.open is not None
    with pytest.raises(UnknownSettings, match=r"doesn't know: (teleport|delivery|commit\.never)"):
        followed(flow(), control.open)
    found = open_settings(control, flow())
    assert found is not None
    assert "doesn't know" in found.unknown


@pytest.mark.parametrize(
    ("kind", "runs"), [(Kind.LIVE, Runs.LIVE), (Kind.ROUNDS, Runs.LIVE), (Kind.BACKFILL, Runs.JOB)]
)
def test_what_an_open_generation_says(kind: Kind, runs: Runs) -> None:
    own = own_file(flow(MORE))
    assert open_settings(opened(own, kind=kind), flow()) == OpenSettings(runs=runs, hash=own.hash, revision=2)
    assert open_settings(Control(), flow()) is None


def test_a_job_carries_settings_along_and_hands_them_back() -> None:
    """With the lanes of the generation before it, though its own file has others."""
    own = own_file(flow(MORE))
    job = opened(None, 8, Kind.BACKFILL, opened(own, 3))
    assert handing_back(lambda _: 1)(job) == Proposal(LaneAssignment(3))
    back = generation(None, 3, before=job)
    assert (back.settings, back.revision) == (own.settings, 2)


def test_a_job_on_a_flow_without_settings_hands_back_its_own_lanes() -> None:
    job = opened(None, 8, Kind.BACKFILL, opened(None, 3))
    assert handing_back(lambda _: 1)(job) == Proposal(LaneAssignment(1))
    assert handing_back(lambda _: 1)(opened(None, 1)) is None


def test_a_lone_process_runs_its_own_file() -> None:
    """It begins a generation for it, unless the open one has none: then a change of settings alone needs none."""
    own, lanes = own_file(flow("lanes: 2")), LaneAssignment(2)

    def two(control: Control) -> int:
        return lanes_wanted(flow("lanes: 2"), {}, control)

    assert keeping(two, own)(opened(own, 2)) is None
    assert keeping(two, own)(opened(None, 2)) is None
    assert keeping(two, own)(opened(own_file(flow("lanes: 2, exclude: [x]")), 2)) == Proposal(lanes, own)
    assert keeping(two, own)(opened(own, 3)) == Proposal(lanes, own)
    assert not fits(generation(own, 2, Kind.ROUNDS), 2, own)


def test_a_revision_is_never_lowered() -> None:
    """Else the file that was replaced on purpose would be the newer one at its next start."""
    before = opened(own_file(flow("revision: 5")))
    assert generation(own_file(flow("lanes: 2")), before=before).revision == 5
    assert generation(own_file(flow("lanes: 2, revision: 6")), before=before).revision == 6
    assert generation(own_file(flow("lanes: 2"))).revision is None


def test_differences_are_named_by_key() -> None:
    one, other = own_file(flow("lanes: 2")).settings, own_file(flow("commit: {interval_ms: 7}")).settings
    assert differences(one, other) == {"commit.interval_ms": ("", "7"), "lanes": ("2", "")}
    assert differences(one, one) == {}
    assert "topics" in differences("", one)


def test_lanes_are_fixed_when_the_flow_is_first_opened() -> None:
    """By as many partitions as it has then, unless the file names a number."""
    counts = {0: 1, 1: 1, 32: 1, 33: 2, 256: 8, 10_000: 8}
    assert {count: lanes_wanted(flow(), {"orders": count}, Control()) for count in counts} == counts
    assert lanes_wanted(flow(), {"orders": 10_000}, opened(own_file(flow()), 2)) == 2
    assert lanes_wanted(flow(), {"orders": 64}, opened(None, 3, Kind.BACKFILL, opened(own_file(flow()), 5))) == 5
    assert lanes_wanted(flow("lanes: 4"), {"orders": 1}, opened(own_file(flow()), 2)) == 4


def test_partitions_are_dealt_out_to_the_lanes_of_the_daemon() -> None:
    """Over its record, and by the first listing, however often lanes change; one that a hash has cut stays so."""
    first = Control().apply(Control().prepare(LaneAssignment(2), {"a": 4, "b": 4}, 1))
    for record in first.finish(2):
        first = first.apply(decoded(record))
    again = opened(None, 4, before=first)
    for control, lanes in ((first, 2), (again, 4)):
        assert control.open is not None
        of = control.open.assignment.lane_of
        for topic in ("a", "b"):
            assert sorted(of(topic, number) for number in range(4)) == sorted(number % lanes for number in range(4))
    job = opened(None, 8, Kind.BACKFILL, first).open
    assert job is not None
    assert job.assignment == LaneAssignment(8)
    hashed = Generation(1, Phase.OPEN, 2, partitions={"orders": 2})
    assert decoded(hashed).assignment == LaneAssignment(2)


def decoded(record: Generation) -> Generation:
    found = decode(record.key, record.encode())
    assert found is not None
    return found


def test_a_generation_says_which_cluster_it_copies_from() -> None:
    """Over its record, a job, and a generation whose beginner didn't know it."""
    own = own_file(flow(), "west-id")
    control = opened(None, 1, before=opened(None, 8, Kind.BACKFILL, opened(own)))
    assert control.open is not None
    assert decoded(control.open).source_cluster == "west-id"
    assert generation(own_file(flow("lanes: 2"), "new-id"), before=control).source_cluster == "new-id"


HOOKS = "failover: {on_freeze: [/bin/fence]}"


def test_hooks_of_a_failover_are_never_stored_nor_taken_from_what_is() -> None:
    """Otherwise whoever may write to the target could have commands run on an operator's machine."""
    assert own_file(flow(HOOKS)) == own_file(flow())
    made = generation(own_file(flow("lanes: 2")), 2)
    planted = replace(
        made, settings=json.dumps({**json.loads(made.settings), "failover": {"on_freeze": ["/bin/evil"]}})
    )
    assert followed(flow(HOOKS), planted).failover.on_freeze == ("/bin/fence",)
    assert followed(flow(), planted).failover.on_freeze == ()


HTTP = "http://127.0.0.1:1"
REGISTRIES = (
    f"schema_registry: {{{{source: {HTTP}, target: {{{{url: {HTTP}/other, username: u, password: {{}}}}}}, {{}}}}}}"
)


def test_how_registries_are_reached_is_never_stored_nor_taken_from_what_is() -> None:
    """Their passwords least of all; but which subjects go over holds for all workers."""
    mine, other = flow(REGISTRIES.format("p1", "")), flow(REGISTRIES.format("p2", ""))
    assert own_file(mine) == own_file(other) == own_file(flow())
    stored = own_file(flow(REGISTRIES.format("p2", "include: [a]")))
    assert json.loads(stored.settings)["schema_registry"] == {"include": ["a"]}
    made = generation(stored)
    found = followed(mine, made).schema_registry
    assert (found.include, found.target.password) == (("a",), "p1")
    evil = {"include": ["a"], "target": {"url": "http://evil"}}
    planted = replace(made, settings=json.dumps({**json.loads(made.settings), "schema_registry": evil}))
    assert followed(mine, planted).schema_registry.target == mine.schema_registry.target
    assert not followed(flow(), planted).schema_registry.synced
    assert followed(flow(), generation(own_file(flow("schema_registry: {mode: topic}")))).schema_registry.topics
