"""Which settings a worker runs: its file proposes, the flow's control topic decides. Pure.

Workers of one flow may have different files for a while, or for ever. Each runs what the open generation says. A worker
proposes its own file at its start only, and only if that file is new to the flow: otherwise two workers with two files
would replace each other's generation for ever. It decides once by what it reads, and again after it has initialised
the control id: meanwhile another worker may have proposed the same file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

CONNECTIONS = ("source", "target")
"""Settings that are a cluster: only its name counts."""
REGISTRY = "schema_registry"
NOT_STORED = ("revision", "failover")
"""Settings that are a file's own. What a failover starts on an operator's machine is never read from a topic."""
FINISH_AFTER_S = 10.0
"""For how long a worker has seen a half-done change, by its own monotonic clock, before it finishes it."""


def canonical(settings: Mapping[str, Any]) -> str:
    """Write a flow's settings as canonical JSON: keys sorted, no spaces, ASCII only, without connections.

    Args:
        settings: as `Flow.model_dump(mode="json", exclude_defaults=True)` gives them. Defaults are left out, so that a
            version that has one more setting doesn't see another file; of a cluster only its name stays.
    """
    kept = {
        key: value["name"] if key in CONNECTIONS and isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key not in NOT_STORED
    }
    if isinstance(registry := kept.pop(REGISTRY, None), Mapping) and (
        rest := {key: value for key, value in registry.items() if key not in CONNECTIONS}
    ):
        kept[REGISTRY] = rest
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def settings_hash(text: str) -> str:
    """Hash canonical JSON: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Runs(Enum):
    """What kind of generation is open, as far as a worker's file is concerned."""

    LIVE = "live"  # a file may replace it
    FROZEN = "frozen"  # lanes run, and copy nothing: only a command ends it
    JOB = "job"  # it hands the flow over by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSettings:
    """What the open generation says. `hash`: empty where a version opened it that stored none. `unknown`: why this
    version can't run its settings, empty where it can."""

    runs: Runs
    hash: str
    revision: int | None = None
    unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnFile:
    """The flow as this worker's file has it; `revision` is optional there. `settings`: what the hash is of.
    `source_cluster`: the id of the cluster that the file names as source; empty where that isn't known."""

    hash: str
    revision: int | None = None
    settings: str = ""
    source_cluster: str = ""


class FileDecision(Enum):
    """What a worker does."""

    PROPOSE = "propose"
    """Open a generation with its own file."""
    FOLLOW = "follow"
    """Run the open generation, whose settings are those of its file."""
    FOLLOW_OTHER = "file_is_older"
    """Run the open generation, and warn that its own file is older."""
    STAND_BY_JOB = "job"
    """Run nothing until the job has handed over."""
    STAND_BY_NEWER = "settings_unreadable"
    """Run nothing: the open settings are a newer version's."""

    @property
    def runs(self) -> bool:
        """Whether lanes run now."""
        return self in (FileDecision.FOLLOW, FileDecision.FOLLOW_OTHER)


def decide(open_: OpenSettings | None, proposed: Collection[str], own: OwnFile, *, at_start: bool) -> FileDecision:
    """Decide what a worker does.

    Args:
        open_: what the open generation says; None: the flow has never been opened.
        proposed: the hashes of all generations that the control topic has, also of those that are closed.
        own: this worker's file.
        at_start: whether it has just started; later it only follows.
    """
    if open_ is None:
        return FileDecision.PROPOSE
    if open_.runs is Runs.JOB:
        return FileDecision.STAND_BY_JOB
    if open_.runs is Runs.LIVE and at_start and _newer(open_, proposed, own):
        return FileDecision.PROPOSE
    if open_.unknown:
        return FileDecision.STAND_BY_NEWER
    return FileDecision.FOLLOW if open_.hash == own.hash else FileDecision.FOLLOW_OTHER


def _newer(open_: OpenSettings, proposed: Collection[str], own: OwnFile) -> bool:
    """Return whether a file is newer than what is open: by its revision where both have one, else if it was never
    proposed. Any file is newer than a generation without settings."""
    if not open_.hash:
        return True
    if own.hash == open_.hash:
        return own.revision is not None and own.revision > (open_.revision or 0)
    if own.revision is not None and own.revision != (open_.revision or 0):
        return own.revision > (open_.revision or 0)
    return own.hash not in proposed


def newest_revision(before: int | None, own: int | None) -> int | None:
    """Return the revision of a generation that replaces another one: never less, also where a command goes back to an
    older file. Otherwise the file that it has replaced would be the newer one at the next start."""
    known = [revision for revision in (before, own) if revision is not None]
    return max(known, default=None)


def differences(before: str, after: str) -> dict[str, tuple[str, str]]:
    """Compare the settings of two files.

    Args:
        before, after: canonical JSON, or empty.

    Returns by key, such as `commit.interval_ms`, what both say as JSON; empty where one says nothing: the default.
    """
    one, other = (_flat(json.loads(text)) if text else {} for text in (before, after))
    return {
        key: (one.get(key, ""), other.get(key, "")) for key in sorted({*one, *other}) if one.get(key) != other.get(key)
    }


def followed_said(flow: str, generation: int, own: str, followed: str) -> str:
    """Say that workers run other settings than a file has that the flow has had before, and how to go back to it.

    Args:
        flow, generation: the flow, and the generation whose settings they run.
        own, followed: the settings of the file and of that generation, canonical JSON.
    """
    return (
        f"the flow has had this file before: workers run the settings of generation {generation}, which differ in "
        f"{', '.join(differences(own, followed))}. To go back to this file: eos-replicate apply --flow {flow} -c FILE"
    )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = json.dumps(value)
    return found


@dataclass(frozen=True, slots=True)
class ChangeWatch:
    """When a worker may initialise the control id, which cuts short whoever is at a change. Times are monotonic.

    A change that somebody has begun is left to that one for `FINISH_AFTER_S`, and so is an open generation of a command
    that is over in one transaction (`passing`): the workers that it was taken from would cut it short. So is the
    control id after somebody else has initialised it: two workers that want to propose would otherwise fence each other
    for ever, before either has written anything.
    """

    open: int = 0
    preparing: int = 0
    since_s: float = 0.0
    passing: bool = False
    fenced_s: float | None = None

    def look(self, open_: int, preparing: int, now_s: float, *, passing: bool = False) -> ChangeWatch:
        """Note which generation is open and which is being prepared (0: none). What goes on is waited for anew."""
        if (open_, preparing) == (self.open, self.preparing):
            return self
        return ChangeWatch(open_, preparing, now_s, passing)

    def fenced(self, now_s: float) -> ChangeWatch:
        """Note that somebody else has initialised the control id."""
        return replace(self, fenced_s=now_s)

    def may_change(self, now_s: float) -> bool:
        """Tell whether the control id may be initialised, to propose a file or to finish what is half done."""
        waits = [self.since_s] if self.preparing or self.passing else []
        if self.fenced_s is not None:
            waits.append(self.fenced_s)
        return all(now_s - since_s >= FINISH_AFTER_S for since_s in waits)


NOTHING_SEEN = ChangeWatch()
