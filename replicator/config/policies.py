"""`policy` of a flow: what `run` decides by itself about incidents, and how much of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

GapOffsets = Annotated[
    int,
    Field(
        strict=True,
        ge=0,
        le=1_000_000_000_000,
        description="At most so many source offsets of a partition are left out by this rule in any 24 hours; what is "
        "more waits for an operator. Needed where something is decided.",
    ),
]


class _Rule(BaseModel):
    """What is decided about one kind of incident."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decide: str
    gap_offsets_max_per_day: int

    @model_validator(mode="after")
    def _bounded(self) -> _Rule:
        if (self.decide == "stop") is not (self.gap_offsets_max_per_day == 0):
            raise ValueError("needs both: decide, and gap_offsets_max_per_day above 0")
        return self


class GapPolicy(_Rule):
    """About records that the source has lost."""

    decide: Literal["stop", "skip"] = Field(
        default="stop", description="The decision: stop and wait for an operator, or skip what is gone."
    )
    gap_offsets_max_per_day: GapOffsets = 0


class RecordPolicy(_Rule):
    """About one record that can't be copied."""

    decide: Literal["stop", "skip", "set_aside"] = Field(
        default="stop",
        description="The decision: stop and wait for an operator, skip the record, or set it aside, which keeps it in "
        "the flow's topic for such.",
    )
    gap_offsets_max_per_day: GapOffsets = 0


class DecisionPolicy(BaseModel):
    """What `run` decides about incidents by itself, by their kind, as an operator could (`incident resolve`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source_records_gone: GapPolicy = Field(
        default=GapPolicy(), description="Retention removed records before they were copied."
    )
    record_too_large: RecordPolicy = Field(
        default=RecordPolicy(), description="A record is larger than the target or the client takes."
    )
    record_refused: RecordPolicy = Field(default=RecordPolicy(), description="The target refuses a record.")
    header_not_carriable: RecordPolicy = Field(
        default=RecordPolicy(), description="A record has a header key that isn't UTF-8."
    )
    timestamp_not_carriable: RecordPolicy = Field(
        default=RecordPolicy(), description="A record has no timestamp, or one that isn't above zero."
    )
    target_timestamp_bounds: RecordPolicy = Field(
        default=RecordPolicy(), description="The target topic doesn't take a record's timestamp."
    )

    def of(self, kind: str) -> GapPolicy | RecordPolicy | None:
        """Return the rule about this kind of incident; None where nothing is decided."""
        rule = getattr(self, kind, None) if kind in DecisionPolicy.model_fields else None
        return rule if rule is not None and rule.decide != "stop" else None

    @property
    def decides(self) -> bool:
        """Whether it decides anything."""
        return self != DecisionPolicy()

    @property
    def sets_aside(self) -> bool:
        """Whether it sets records aside."""
        rules = [getattr(self, kind) for kind in DecisionPolicy.model_fields]
        return any(rule.decide == "set_aside" for rule in rules)
