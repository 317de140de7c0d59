"""`groups` of a flow: which consumer groups go on at the target, and under which names (KIP-545, KIP-1378)."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from replicator.config.patterns import matches, name_or_pattern
from replicator.config.units import MILLISECONDS
from replicator.model import names

PLACEHOLDERS = ("source", "target", "flow", "group")
HOLD_AUTO = "auto"
HOLD_SCHEMA = {"anyOf": [{"const": HOLD_AUTO}, {"type": "array", "items": {"type": "string"}}]}
GROUP_BYTES_MAX = 255
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def _rename(value: str) -> str:
    for name in _PLACEHOLDER.findall(value):
        if name not in PLACEHOLDERS:
            known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"unknown placeholder {{{name}}}; known are {known}")
    if "{group}" not in value:
        raise ValueError("needs {group}: without it all groups would have one name")
    return value


def _hold_with(value: Any) -> Any:
    """Read `auto` as None, which stands for it in the model."""
    if value is None or (isinstance(value, str) and value != HOLD_AUTO):
        raise ValueError(f"expected a list of topics, or {HOLD_AUTO}")
    return None if value == HOLD_AUTO else value


GroupPattern = Annotated[str, AfterValidator(partial(name_or_pattern, of="group"))]


class GroupSettings(BaseModel):
    """Consumer groups whose offsets are kept at the target, translated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include: tuple[GroupPattern, ...] = Field(
        default=(),
        description="Consumer groups of the source whose offsets `run` translates and commits at the target: names, or "
        "regular expressions when they start with ^. Empty: none. Groups that have members at the target are never "
        "moved, nor is an offset that somebody else has committed there.",
    )
    exclude: tuple[GroupPattern, ...] = Field(default=(), description="Groups left out, written like include.")
    rename: Annotated[str, AfterValidator(_rename)] = Field(
        default="{group}",
        description="Name of the group at the target. {source}, {target}: names of the clusters, {flow}, {group}.",
    )
    interval_ms: Annotated[int, Field(strict=True, ge=100, le=3_600_000), MILLISECONDS] = Field(
        default=5000, description="How often offsets are read at the source."
    )
    hold_with: Annotated[tuple[str, ...] | None, BeforeValidator(_hold_with), WithJsonSchema(HOLD_SCHEMA)] = Field(
        default=None,
        json_schema_extra={"default": HOLD_AUTO},
        description="Source topics of the flow that groups write to: names, or regular expressions when they start "
        "with ^. A group is moved only as far as what it had read when these topics stood where they are copied to, so "
        "what it has written from that is at the target, too. auto: the topics to which producers write that commit "
        "offsets of groups in their transactions, looked for at the source. Empty: none.",
    )

    deleted: Literal["keep", "delete"] = Field(
        default="keep",
        description="What becomes of a group at the target that was deleted at the source. keep: nothing. delete: it "
        "is deleted there, too, if it has no members and all of its offsets are those that the flow has committed. "
        "Groups of topics that aren't at the source any more are kept.",
    )

    @property
    def synced(self) -> bool:
        """Whether any group is."""
        return bool(self.include)

    def selects(self, group: str) -> bool:
        """Return whether the group is one whose offsets are kept at the target. Groups of flows never are."""
        if not group or group.startswith(names.OWN_GROUPS_PREFIX):
            return False
        return matches(self.include, group) and not matches(self.exclude, group)
