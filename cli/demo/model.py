"""Settings, progress and result of a run of the demo."""

from __future__ import annotations

from dataclasses import dataclass, field

from cli.demo.compare import Comparison

TOPICS = {"orders": 4, "payments": 2}
FLOW = "demo"
RENAMED = "source.{}"  # what the flow's default pattern makes of a topic of the cluster `source`


class DemoFailed(Exception):
    """The demo could not compare the two sides; the message ends with the log that says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the user asked for. `at_steps`: kill the worker at the steps where weaker delivery modes fail. `workers`:
    how many processes share the flow."""

    records: int
    seconds: float
    kills: int
    broker_kills: int
    seed: int
    delivery: str = "exactly_once"
    at_steps: bool = False
    workers: int = 1


@dataclass(slots=True)
class Progress:
    """What is shown while it runs.

    `written` and `committed` are offsets: ends of the source, and the positions that the target has committed;
    `lag` is their distance. `copied` counts the records that the worker says it has committed. `events` holds one
    line for each thing that happened.
    """

    phase: str = "starting"
    written: int = 0
    copied: int = 0
    committed: int = 0
    lag: int = 0
    worker_kills: int = 0
    broker_kills: int = 0
    seconds: float = 0.0
    events: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Proof:
    """What `reconcile --local` has said: its verdict and its headline."""

    verdict: str
    headline: str

    @property
    def agrees(self) -> bool:
        """Whether every record of both sides is the same."""
        return self.verdict == "agrees"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The end of a run: verdicts by topic and partition, kills that really happened, recovery times in seconds; what
    `reconcile --local` says of it, which needs exactly_once; and of several workers, who ran which lane from when."""

    verdicts: dict[tuple[str, int], Comparison]
    worker_kills: int
    broker_kills: int
    recoveries_s: tuple[float, ...]
    seconds: float
    proof: Proof | None = None
    timeline: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing was lost, doubled, reordered or altered, by whoever has compared."""
        return self.total.exact and (self.proof is None or self.proof.agrees)

    @property
    def total(self) -> Comparison:
        """All partitions together."""
        return sum(self.verdicts.values(), Comparison())
