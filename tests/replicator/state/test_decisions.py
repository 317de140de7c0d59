"""Decisions about incidents: which are taken, which are refused and why, and how they stand in the control topic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replicator.model.commands import COMMANDS, Command
from replicator.model.errors import Incident
from replicator.model.incident_kinds import KINDS
from replicator.model.partition import LogEnds, Partition
from replicator.state.claims import Claim
from replicator.state.control_topic import fold
from replicator.state.decisions import (
    AdoptedSides,
    NotDecided,
    Objection,
    OperatorDecision,
    decide,
    decode,
    restarted,
)
from replicator.state.envelope import NewerFormat
from replicator.state.generation import BadControl, Generation, Phase
from replicator.state.occurrences import Closing, Ending, Occurrence, found

SOURCE, TARGET = Partition("t", 3), Partition("copy", 3)
GENERATION = Generation(1, Phase.OPEN, 1)


def occurrence(name: str = "source_records_gone", offset: int = 10, end: int = 20, id_: str = "aa11") -> Occurrence:
    incident = Incident(name, "why", topic="t", partition=3, offset=offset, end=end)
    return replace(found(incident, TARGET, SOURCE, "me", 1, 1_000), id=id_)


GONE = occurrence()


def taken(
    start: str, command: Command, *all_: Occurrence, decided: dict[str, OperatorDecision] | None = None
) -> OperatorDecision:
    return decide(start, command, all_, decided or {}, by="ann", why="no need of them", now_ms=7)


def refused(start: str, command: Command, *all_: Occurrence, decided: dict[str, OperatorDecision] | None = None) -> str:
    with pytest.raises(NotDecided) as raised:
        taken(start, command, *all_, decided=decided)
    return str(raised.value)


def test_it_names_the_occurrence_and_the_facts_it_rests_on() -> None:
    found_ = taken("aa", Command.SKIP, GONE, occurrence(id_="bb22"))
    assert (found_.occurrence, found_.name, found_.offset, found_.end) == ("aa11", "source_records_gone", 10, 20)
    assert (found_.command, found_.by, found_.why, found_.at_ms) == (Command.SKIP, "ann", "no need of them", 7)
    assert found_.fits(GONE)
    assert found_.token != taken("aa", Command.SKIP, GONE).token


def test_it_stands_in_the_control_topic_beside_generations() -> None:
    decision = taken("aa11", Command.RETRY, GONE)
    control = fold([(GENERATION.key, GENERATION.encode()), decision.encode()])
    assert control.decisions == {"aa11": decision}
    assert control.open == GENERATION
    assert control.apply(replace(GENERATION, phase=Phase.CLOSED)).decisions == {"aa11": decision}
    key, value = decision.encode()
    assert (key, b'"must_understand":false' in value) == (b"decision/aa11", True)


def test_a_decision_that_this_version_can_not_read_is_told() -> None:
    key, value = taken("aa11", Command.RETRY, GONE).encode()
    with pytest.raises(BadControl, match="holds the decision of aa11"):
        fold([(b"decision/bb22", value)])
    with pytest.raises(BadControl, match="unreadable"):
        fold([(key, value.replace(b'"retry"', b'"explode"'))])
    newer = value.replace(b'"v":1', b'"v":2')
    assert fold([(key, newer)]).decisions == {}
    with pytest.raises(NewerFormat):
        fold([(key, newer.replace(b'"must_understand":false', b'"must_understand":true'))])


def test_an_id_that_nothing_has_is_unknown_and_those_that_are_open_are_named() -> None:
    assert refused("cc", Command.RETRY, GONE) == "unknown: no incident of a partition has the id cc; open: aa11"
    assert refused("", Command.RETRY, GONE).startswith("unknown")
    assert refused("cc", Command.RETRY).endswith("open: none")


def test_the_beginning_of_several_ids_is_ambiguous() -> None:
    several = (GONE, occurrence(id_="aa1122"), occurrence(id_="aa33"))
    assert refused("aa", Command.RETRY, *several) == "ambiguous: several ids begin with aa: aa11, aa1122, aa33"
    assert taken("aa11", Command.RETRY, *several).occurrence == "aa11"


@pytest.mark.parametrize("command", Command)
def test_a_second_decision_is_refused_whatever_it_is(command: Command) -> None:
    before = taken("aa11", Command.SKIP, GONE)
    text = refused("aa11", command, GONE, decided={"aa11": before})
    assert text == "already_decided: aa11: ann has decided --skip (no need of them); the flow has not acted on it yet"
    closing = Closing(effect=Ending.SKIPPED, by="me", at_ms=8, moved=(10, 20), decision=before)
    closed = GONE.closed(closing, 1)
    assert refused("aa11", command, closed, decided={"aa11": before}).endswith("the incident is closed (skipped)")


def test_what_is_over_is_outdated_and_what_came_instead_is_named() -> None:
    closed = GONE.closed(Closing(effect=Ending.REPLACED, by="me", at_ms=8), 1)
    text = refused("aa11", Command.SKIP, closed, occurrence(offset=15, id_="bb22"))
    assert text == "outdated: aa11 is closed (replaced): its facts have changed; its partition is stopped by bb22 now"
    assert refused("aa11", Command.SKIP, closed).endswith("its facts have changed")


@pytest.mark.parametrize(
    ("it", "command", "apply"),
    [
        (occurrence("target_lost_data"), Command.SKIP, "use --retry"),
        (occurrence("source_topic_deleted"), Command.RETRY, "no command does"),
        (occurrence("source_records_gone"), Command.SET_ASIDE, "use --retry or --skip"),
        (occurrence("source_records_gone", end=-1), Command.SKIP, "use --retry"),
        (occurrence("source_records_gone", offset=-1), Command.SKIP, "use --retry"),
    ],
)
def test_a_command_that_does_not_apply_is_refused_with_those_that_do(
    it: Occurrence, command: Command, apply: str
) -> None:
    assert refused("aa11", command, it) == f"wrong_command: {command.option} doesn't apply to {it.name} (aa11): {apply}"


def test_what_could_be_lost_meanwhile_is_left_to_another_decision() -> None:
    decision = taken("aa11", Command.SKIP, GONE)
    assert decision.fits(replace(GONE, detail="more", end=30))
    for other in (
        replace(GONE, end=15),
        replace(GONE, offset=11),
        replace(GONE, name="source_truncated"),
        replace(GONE, id="bb22"),
        GONE.closed(Closing(effect=Ending.GONE, by="me", at_ms=8), 1),
    ):
        assert not decision.fits(other)
    assert not replace(decision, end=10).fits(GONE)
    assert not replace(decision, command=Command.SET_ASIDE).fits(GONE)
    record = occurrence("record_refused", end=11)
    assert taken("aa11", Command.SET_ASIDE, record).fits(record)


def test_commands_are_for_kinds_that_there_are() -> None:
    assert COMMANDS.keys() <= KINDS.keys()
    assert all(Command.RETRY in commands for commands in COMMANDS.values())


def test_the_advice_has_the_commands_that_leave_something_out() -> None:
    for name, commands in COMMANDS.items():
        told = [command for command in commands if command.moves and command.option not in KINDS[name].advice]
        assert told == [], f"{name}: {KINDS[name].advice}"
    others = [name for name in KINDS.keys() - COMMANDS.keys() if "incident resolve" in KINDS[name].advice]
    assert others == [], "a command that doesn't apply"


@pytest.mark.parametrize(
    ("name", "former"), [("source_topic_recreated", ("S1", "T1")), ("target_topic_recreated", ("T1", "S1"))]
)
def test_a_topic_that_was_created_again_on_both_sides_is_restarted_as_it_is_offered(
    name: str, former: tuple[str, str]
) -> None:
    """Whichever of both was found: the advice and `incident show` offer the command for either."""
    it = replace(occurrence(name), topic_id="S2", target_topic_id="T2")
    claim = Claim(it.target, it.source, "S1", "T1", 0, 0, 1, "o", 0, "c")
    assert Command.RESTART_TOPIC in COMMANDS[name]
    assert Command.RESTART_TOPIC.option in KINDS[name].advice
    decision = taken("aa11", Command.RESTART_TOPIC, it)
    made = restarted(it, decision, LogEnds("S2", 4, 9, 9), LogEnds("T2", 0, 7, 7), claim)
    assert made.adopted is not None
    assert (made.adopted.former_topic_id, made.adopted.former_other_id, made.end) == (*former, 4)
    assert decode(*made.encode()) == made


def test_a_topic_is_restarted_only_as_it_was_found() -> None:
    it = replace(occurrence("source_topic_recreated"), topic_id="S2", target_topic_id="T")
    claim = Claim(it.target, it.source, "S1", "T", 0, 0, 1, "o", 0, "c")
    decision = taken("aa11", Command.RESTART_TOPIC, it)
    source, target = LogEnds("S2", 4, 9, 9), LogEnds("T", 0, 7, 7)
    made = restarted(it, decision, source, target, claim)
    assert made.adopted == AdoptedSides(source_topic_id="S2", target_topic_id="T", target_end=7, former_topic_id="S1")
    assert made.end == 4
    assert made.fits(it)
    assert not decision.fits(it), "it doesn't say of which topics"
    assert decode(*made.encode()) == made

    def refused_of(source: LogEnds, target: LogEnds, claim: Claim | None, it: Occurrence = it) -> Objection:
        with pytest.raises(NotDecided) as found:
            restarted(it, decision, source, target, claim)
        return found.value.reason

    assert refused_of(source._replace(topic_id="S3"), target, claim) is Objection.OUTDATED
    assert refused_of(source, target._replace(topic_id="T2"), claim) is Objection.OUTDATED
    assert refused_of(source, target, None) is Objection.WRONG_COMMAND
    assert refused_of(source, target, replace(claim, source=Partition("another", 3))) is Objection.WRONG_COMMAND
    assert refused_of(source, target, replace(claim, source_topic_id="S2")) is Objection.WRONG_COMMAND
