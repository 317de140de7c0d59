"""Names of the field are used; words that were made up here, and have a name that every Kafka engineer knows, stay out.

Ordinary English in comments is fine. What counts are identifiers, names of modules and of log events.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM_PLACES = ("replicator", "cli", "embedded_broker", "integration_tests", "benchmarks")
PLACES = (*PROGRAM_PLACES, "tests/replicator", "tests/cli")
FILES = sorted(path for place in PLACES for path in (ROOT / place).rglob("*.py"))

WORDS = {  # a part of a name, as in check_tails or TailCheck: what to say instead
    "admission": "start decision",
    "ambush": "targeted crash",
    "doubt": "unknown outcome, or id mismatch",
    "groupcommit": "flush scheduler",
    "harvest": "poll result",
    "heads": "retained prefix",
    "incarnation": "producer session",
    "judge": "decide, compare, classify",
    "judged": "decided, compared, classified",
    "judges": "decides, compares, classifies",
    "ledger": "positions",
    "mended": "repairable",
    "orphan": "hanging transaction",
    "parked": "stopped",
    "sighted": "partition state",
    "sighting": "partition state",
    "skim": "request limits",
    "stretch": "range",
    "stretches": "ranges",
    "tenure": "job generation",
    "tether": "die with parent",
    "vouched": "covered",
    "vouches": "covers",
    "weather": "network conditions",
}
OTHER_SENSES = {  # a list of what was done, which is written beside a backfill, and by an application of the demo
    "ledger": (
        "replicator/spark/range_ledger.py",
        "cli/commands/backfill.py",
        "cli/commands/backfill_watch.py",
        "cli/demo/consumer.py",
        "cli/demo/failing_over.py",
        "tests/replicator/spark/test_range_ledger.py",
        "tests/cli/test_backfill.py",
    ),
}
NAMES = {  # a whole name, in any case and with or without an underscore before it
    "appending": "append validation",
    "check_tails": "target check",
    "cut_of": "lane assignment",
    "director": "orchestrator",
    "full_disk": "disk full",
    "insist": "retry until done",
    "judge_tail": "compare_end",
    "map_topic": "claims topic",
    "mortal": "killable filesystem",
    "noise": "client error",
    "one_place": "single-partition commit",
    "opening": "lane start",
    "reach": "failpoint",
    "settle_s": "linger",
    "tails": "end records",
    "till": "until",
    "verifying": "transaction verification",
}
CLASSES = {  # only as the name of a class or type: as verbs and nouns these are ordinary words
    "Bounds",
    "Cut",
    "Keeping",
    "Observed",
    "Play",
    "Reach",
    "Reading",
    "Seen",
    "Sharing",
    "Slot",
    "Tail",
    "Told",
}
"""In replicator/ and cli/ only."""


VERB_LIST = """
Abort Accept Account Add Allocate Allow Answer Append Apply Ask Assign Begin Boot Bound Bring Build Call Cancel Change
Check Choose Claim Classify Clean Close Collect Commit Compact Compare Complete Compute Configure Connect Copy Count
Crash Create Cut Decide Decode Decompress Decrypt Delete Describe Divide Do Draw Drop Encode Encrypt End Fail Feed
Fence Fetch Fill Find Finish Flip Flush Fold Forget Freeze Give Go Grant Group Hand Handle Hash Have Hold Ignore
Import Initialise Inject Invoke Join Keep Kill Leave Let Limit List Listen Load Log Look Lose Make Map Mark Match
Merge Move Name Need Note Open Pass Pause Pay Plan Poll Print Process Produce Propose Prune Purge Put Raise Read
Rebuild Receive Record Recover Reduce Refuse Register Release Remove Renew Repeat Replace Report Resolve Resume Return
Revoke Route Run Say Schedule See Seek Send Serve Set Share Shed Show Shut Skip Soft-delete Sort Split Spread
Stamp Start Stop Store Sum Take Tell Translate Truncate Try Turn Undo Unregister Update Validate Wait Wake Watch Write
Yield
"""
VERBS = frozenset(VERB_LIST.split())
"""Each function's docstring begins with one of these, in the imperative. Look here before you add one."""
SAYS_OF = {"Leave", "Say", "Tell"}
"""Verbs that `of` may follow. Behind any other one it makes a noun of it, as in "Name of a topic"."""
IMPERATIVE = ("replicator", "embedded_broker", "kafka_records", "cli")
API_NOTES = "Behaviour:"
"""So begins what `docs/protocol.md` says of an API: a handler's docstring may be that."""

ONE_MEANING = (
    "replicator",
    "cli",
    "embedded_broker",
    "kafka_records",
    "integration_tests",
    "benchmarks",
    "docs/examples",
)
"""No two classes in all of these have the same name, and no two protocols; one may be named as what implements it."""
PROGRAMS = (("replicator",), ("embedded_broker", "kafka_records"))
"""Within one of these no name is shared at all."""
SHARED_NAMES = """
Action Answer Asked Backfill Bound Clock Committer Config Connection Content Copied Copying Crew Damage Ended
Endpoint Expected FailedOver FailoverRun Fault Fenced Figures Flow Group GroupCoordinator GroupMember
GroupOffset GroupPlan History Kafka Kill Load Log Machine MappedFlow Member MembershipLost MirrorMaker Numbers
Orchestrator Outcome Pair Partition PartitionLog Place Plan Process Progress ReadRecord Refused Registry
Resource Run Running Scene Schedule Served Shape Side Sides Source Stage Step Stopped Target Threads
TopicConfigs TopicInfo TransactionalProducer Watch Wire World Writers Written
"""
SHARED = frozenset(SHARED_NAMES.split())
"""Names that programs or their tests have for things of their own. None is added: a new class gets another name."""


def _defined(tree: ast.AST) -> Iterator[str]:
    """Every name that a module gives to something, and its log events."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg | ast.keyword):
            yield node.arg or ""
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            event = node.args[0]
            if node.func.attr in ("debug", "info", "warning", "error") and isinstance(event, ast.Constant):
                yield str(event.value)


@cache
def _words_of(name: str) -> frozenset[str]:
    """What of a name is in `WORDS`."""
    return frozenset(part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)) & WORDS.keys()


@cache
def _suspect(word: str) -> bool:
    return bool(_words_of(word)) or word.strip("_").lower() in NAMES or word.strip("_") in CLASSES


def coined(path: Path) -> list[str]:
    """Names in one module that should be others, with what to say instead."""
    found: list[str] = []
    text = path.read_text()
    if not any(map(_suspect, {path.stem, *re.findall(r"\w+", text)})):
        return found
    for name in {path.stem, *_defined(ast.parse(text))}:
        if name.startswith("test_"):
            continue  # a sentence
        plain = name.strip("_").lower()
        parts = _words_of(name)
        here = {word for word, places in OTHER_SENSES.items() if path.relative_to(ROOT).as_posix() in places}
        found += [f"{name}: {WORDS[part]}" for part in sorted(parts - here)]
        found += [f"{name}: {NAMES[plain]}"] if plain in NAMES else []
        if name.strip("_") in CLASSES and path.relative_to(ROOT).parts[0] in ("replicator", "cli"):
            found.append(f"{name}: a name that says what it is")
    return found


PHRASES = (  # sentences that readers had to read twice
    "pass by itself is none",
    "with the code that matters most",
    "After 5 it is over",
    "created again over a claim",
    "denies that it has the topic",
    "stands on a side nor is missing",
    "stretches of records",
    "stretches that differ",
    "would have the next turn anyway",
    "login can't be spoken",
    "stands `before` what is `differing`",
    "new topic under an old position",
    "unless its acks tell already",
    "Close KIP-890's hole",
    "the older one beside itself",
    "doesn't unless it is said",
    "it is the first gibibyte",
    "to the first doubt about",
    "timers of one",
    "What may pass by itself is none",
    "It has half a gigabyte",
    "Wide or narrow, light or dark",
    "is told from",
    "tells by the way",
    "having read so far is to have reached it",
    "As on the wall",
    "A source that waits",
    "both logs were cut and each has some",
    "may pass by itself",
    "over nobody's version",
    "nobody's elsewhere",
    "and the map nothing of them",
    "for what the target alone can say",
    "stand at the target where they should",
    "So is what isn't",
    "behind its own headers stand",
    "that is its lag in records everywhere",
)
PROSE = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def test_no_riddle_comes_back() -> None:
    """In pages, docstrings, comments and messages, over ends of lines."""
    for path in [*PROSE, *FILES]:
        text = " ".join(path.read_text().split())
        assert [phrase for phrase in PHRASES if phrase in text] == [], path


@pytest.mark.tier("unit")  # slow only beside others
def test_no_coined_name_comes_back() -> None:
    assert {str(path.relative_to(ROOT)): names for path in FILES if (names := coined(path))} == {}


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        ast.unparse(one).rpartition(".")[2] in ("property", "cached_property") for one in function.decorator_list
    )


def first_words(code: str) -> Iterator[tuple[str, str]]:
    """The functions of a module, each with the word with which its docstring begins, and an `of` that makes it a noun.

    A property is read as a value, and may be described as one. What `__init__` says belongs to its class.
    """
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__init__":
            said = ast.get_docstring(node) or ""
            if said and not _is_property(node) and not said.startswith(API_NOTES):
                word, *rest = (one.strip(".,:;`") for one in said.split()[:2])
                yield node.name, f"{word} of" if rest == ["of"] and word not in SAYS_OF else word


@pytest.mark.tier("unit")  # slow only beside others
@pytest.mark.parametrize("package", IMPERATIVE)
def test_what_a_function_does_is_said_with_a_verb_first(package: str) -> None:
    said = {
        f"{path.relative_to(ROOT)} {name}": word
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, word in first_words(path.read_text())
    }
    assert len(said) > 20
    assert {where: word for where, word in said.items() if word not in VERBS} == {}


def test_a_docstring_without_a_verb_is_found() -> None:
    begins = ("Whether it is so.", "The end.", "Raises KeyError.", "Name of a topic.")
    code = "\n".join(f"async def f{at}():\n    {text!r}" for at, text in enumerate(begins))
    assert [word in VERBS for _, word in first_words(code)] == [False] * len(begins)
    allowed = "@functools.cached_property\ndef f():\n    'The end.'\ndef g():\n    'Say of each what it is.'"
    assert [word in VERBS for _, word in first_words(allowed)] == [True]


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)


@cache
def _classes(path: Path) -> list[tuple[str, bool]]:
    """Name the classes of a module, and say whether each is a protocol."""
    text = path.read_text()
    if not re.search(r"^class\b", text, re.MULTILINE):
        return []
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return [(node.name, _is_protocol(node)) for node in classes if not node.name.startswith("_")]


def _shared_names(packages: tuple[str, ...]) -> dict[str, list[str]]:
    """Names of more than one class, or of more than one protocol, with where they are."""
    places: dict[tuple[str, bool], list[str]] = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            for found in _classes(path):
                places.setdefault(found, []).append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    return {name: where for (name, _), where in places.items() if len(where) > 1}


@pytest.mark.parametrize("packages", PROGRAMS, ids=lambda packages: packages[0])
def test_each_class_of_a_program_has_a_name_of_its_own(packages: tuple[str, ...]) -> None:
    assert _shared_names(packages) == {}


def test_no_class_is_named_as_another_one_of_the_repository() -> None:
    found = _shared_names(ONE_MEANING)
    assert {name: where for name, where in found.items() if name not in SHARED} == {}
    assert sorted(SHARED - found.keys()) == [], "no longer shared: take them off the list"


@pytest.mark.parametrize(
    "code",
    [
        "class Tail: ...",
        "def check_tails(): ...",
        "SETTLE_S = 1",
        "self._reach = 1",
        "log.info('parked')",
        "f(noise=1)",
    ],
)
def test_a_coined_name_is_found(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    module = tmp_path / "replicator" / "x.py"
    module.parent.mkdir()
    module.write_text(code)
    assert len(coined(module)) == 1
