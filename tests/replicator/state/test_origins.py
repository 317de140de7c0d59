"""Where topics come from, over all flows, and which of them would come back to where they were read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from replicator.config import Flow, load_text
from replicator.model.errors import NotAllowed, Retriable
from replicator.model.origins import Origin, Origins
from replicator.model.partition import Partition
from replicator.state.claims import Claim, Claims, read_claims
from replicator.state.origins import FoundOrigins, claimed_origins, loop, loops, merged, of_topics


def claim(topic: str = "t", cluster: str = "A", *, topic_id: str = "", origins: Origins = frozenset()) -> Claim:
    """A flow's claim of target topic `topic`, read from the topic of the same name."""
    target_id = topic_id or f"id-{topic}"
    return Claim(Partition(topic, 0), Partition(topic, 0), "s", target_id, 0, 0, 1, "me", 1, cluster, origins)


def claims(*found: Claim) -> Claims:
    return Claims({it.target: it for it in found}, ())


def origins_of(found: dict[str, Claims], topic_ids: dict[str, str]) -> dict[str, Origins]:
    return of_topics(merged(claimed_origins(name, theirs) for name, theirs in found.items()), topic_ids)


def flow(name: str = "g", rename: str = "{topic}") -> Flow:
    text = f"""\
clusters: {{b: {{properties: {{bootstrap.servers: "b:1"}}}}, a: {{properties: {{bootstrap.servers: "a:1"}}}}}}
flows: {{{name}: {{source: b, target: a, topics: ["^.*"], rename: "{rename}"}}}}
"""
    return load_text(text, env={}).flows[name]


def test_a_claim_tells_the_cluster_and_everything_behind_it() -> None:
    behind = frozenset({Origin("Z", "t", "e")})
    found = origins_of({"f": claims(claim(origins=behind), claim("u"))}, {"t": "id-t"})
    assert found == {"t": behind | {Origin("A", "t", "f")}}


def test_a_claim_of_a_topic_that_was_created_again_says_nothing_of_the_new_one() -> None:
    assert origins_of({"f": claims(claim(topic_id="before"))}, {"t": "id-t"}) == {}


def test_a_claim_of_a_version_that_did_not_say_the_cluster_says_nothing() -> None:
    key, value = claim(origins=frozenset({Origin("Z", "t", "e")})).encode()
    old = {name: it for name, it in json.loads(value).items() if name not in ("source_cluster", "origins")}
    read = read_claims([(key, json.dumps(old).encode())])
    assert read.claims[Partition("t", 0)] == replace(claim(), source_cluster="", origins=frozenset())
    assert origins_of({"f": read}, {"t": "id-t"}) == {}


def test_a_claim_comes_back_from_its_record_as_it_was() -> None:
    full = claim(origins=frozenset({Origin("Z", "t", "e"), Origin("Y", "z.t", "d")}))
    assert read_claims([full.encode()]).claims == {full.target: full}


def test_a_claim_is_written_again_only_when_it_gets_to_know_more() -> None:
    known = frozenset({Origin("Z", "t", "e")})
    assert claim(origins=known).renewed("A", frozenset(), 2, "you", 9) is None
    assert claim(origins=known).renewed("A", known, 2, "you", 9) is None
    more = claim(origins=known).renewed("A", frozenset({Origin("Y", "t", "d")}), 2, "you", 9)
    assert more is not None
    assert more.origins == known | {Origin("Y", "t", "d")}
    old = replace(claim(), source_cluster="").renewed("A", frozenset(), 2, "you", 9)
    assert old is not None
    assert (old.source_cluster, old.offset, old.key) == ("A", claim().offset, claim().key)


@pytest.mark.parametrize("rename", ["{topic}", "b.{topic}"])
def test_what_comes_from_the_target_never_goes_back_there(rename: str) -> None:
    found = loop(flow(rename=rename), "B", "A", "t", frozenset({Origin("A", "t", "f")}))
    assert found is not None
    assert (found.name, found.topic) == ("flows_in_conflict", "t")
    assert "flow 'f' reads its records from 't' of cluster A" in found.detail


def test_a_circle_over_three_clusters_is_found_by_what_stands_behind_the_last() -> None:
    found = loop(flow(), "C", "A", "t", frozenset({Origin("B", "t", "g"), Origin("A", "t", "f")}))
    assert found is not None
    assert "over flows f, g" in found.detail


def test_a_chain_goes_on() -> None:
    assert loop(flow(), "B", "C", "t", frozenset({Origin("A", "t", "f")})) is None


def test_within_one_cluster_a_chain_is_no_circle_until_it_comes_back() -> None:
    behind = frozenset({Origin("A", "t", "f")})
    assert loop(flow("g", "x.{topic}"), "A", "A", "t.copy", behind) is None
    assert loop(flow("f", "x.{topic}"), "A", "A", "t.copy", behind) is not None, "this flow itself, again and again"
    assert loop(flow("g", "{topic}"), "A", "A", "t", behind) is not None, "the topic itself"


def test_each_topic_is_judged_by_itself() -> None:
    back = {"t": frozenset({Origin("A", "t", "f")}), "u": frozenset({Origin("C", "u", "f")})}
    assert list(loops(flow(), "B", "A", back)) == ["t"]


def test_a_missing_right_does_not_pass_by_itself() -> None:
    assert FoundOrigins({}, {"x": NotAllowed("no")}).passing is None
    assert str(FoundOrigins({}, {"x": NotAllowed("no"), "y": Retriable("soon")}).passing) == "soon"
