"""The flow file as it is written: names of clusters instead of clusters, short forms, checks of one value."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator

from replicator.config.models import LANES_AUTO, LANES_MAX, FlowSettings, Frozen, MetricsSection, SparkSection, Start
from replicator.config.patterns import TOPIC_NAME, check_pattern
from replicator.config.source import but
from replicator.config.token_command import TokenCommandSettings
from replicator.model.names import HEARTBEATS_PREFIX

FLOW_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}")
CLUSTER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")
PLACEHOLDERS = ("source", "target", "flow", "topic")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def start_from(value: Any) -> Any:
    """Read the short forms of `start`: a kind, or an ISO 8601 time with zone."""
    if not isinstance(value, str):
        return value
    if value in ("earliest", "latest"):
        return {"kind": value}
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("expected earliest, latest or a time such as 2026-01-31T12:00:00Z") from None
    if when.tzinfo is None:
        raise ValueError("the time needs a zone, such as 2026-01-31T12:00:00Z")
    return {"kind": "timestamp", "timestamp_ms": round(when.timestamp() * 1000)}


def start_checked(value: Start) -> Start:
    """Check that a timestamp belongs to kind timestamp, and only there."""
    if (value.kind == "timestamp") != (value.timestamp_ms >= 0):
        raise ValueError("timestamp_ms goes with kind timestamp, and must not be negative")
    return value


def lanes_from(value: Any) -> Any:
    """Read `auto`, or a number of lanes."""
    if value == LANES_AUTO and not isinstance(value, bool):
        raise ValueError(f"must be at least 1, not {value}")
    return LANES_AUTO if value == "auto" else value


def pattern_checked(item: str) -> str:
    """Check that a literal is a topic name that may be selected, or that a pattern compiles."""
    check_pattern(item)
    if item.startswith("^"):
        return item
    if not TOPIC_NAME.fullmatch(item) or item in (".", ".."):
        raise ValueError(f"{item!r} is not a topic name; a regular expression starts with ^")
    if item.startswith("__"):
        raise ValueError(f"{item!r}: topics that start with two underscores are internal and never copied")
    if item.startswith(HEARTBEATS_PREFIX):
        raise ValueError(f"{item!r}: topics that start with {HEARTBEATS_PREFIX} are for the setting heartbeat")
    return item


Pattern = Annotated[str, AfterValidator(pattern_checked)]

LANES_SCHEMA = {
    "anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": LANES_MAX}],
    "default": "auto",
}
START_SCHEMA = {
    "anyOf": [
        {"enum": ["earliest", "latest"]},
        {"type": "string", "format": "date-time"},
        {
            "type": "object",
            "properties": {
                "kind": {"enum": ["earliest", "latest", "timestamp"]},
                "timestamp_ms": {"type": "integer"},
            },
            "additionalProperties": False,
        },
    ],
    "default": "earliest",
}


class ClusterSection(Frozen, TokenCommandSettings):
    """A Kafka cluster."""

    properties: dict[str, str] = Field(
        description="Client properties under their librdkafka names; bootstrap.servers is required. "
        "${NAME} stands for an environment variable, $${ for ${ itself, and a value file:PATH for the "
        "content of that file (a relative path starts at this file's directory)."
    )
    allow_plaintext_password: bool = Field(
        default=False,
        strict=True,
        description="Allows a password in this file, or sent without TLS, for hosts other than loopback.",
    )


class FlowSection(FlowSettings):
    """A flow: which topics go from where to where, and how."""

    source: str = Field(description="Name of the cluster to read from.")
    target: str = Field(description="Name of the cluster to write to; positions and evidence are kept there too.")
    topics: Annotated[tuple[Pattern, ...], Field(min_length=1)] = Field(
        description=FlowSettings.model_fields["topics"].description
    )
    exclude: tuple[Pattern, ...] = Field(default=(), description=FlowSettings.model_fields["exclude"].description)
    start: Annotated[Start, BeforeValidator(start_from), WithJsonSchema(START_SCHEMA)] = Field(
        default=Start(), description=FlowSettings.model_fields["start"].description
    )

    lanes: Annotated[
        int,
        BeforeValidator(lanes_from),
        Field(strict=True, ge=LANES_AUTO, le=LANES_MAX),
        WithJsonSchema(LANES_SCHEMA),
    ] = Field(default=LANES_AUTO, description=FlowSettings.model_fields["lanes"].description)

    @field_validator("rename")
    @classmethod
    def _rename(cls, value: str) -> str:
        for name in _PLACEHOLDER.findall(value):
            if name not in PLACEHOLDERS:
                known = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
                raise ValueError(f"unknown placeholder {{{name}}}; known are {known}")
        rest = _PLACEHOLDER.sub("", value)
        if rest and not TOPIC_NAME.fullmatch(rest):
            raise ValueError("a topic name takes only letters, digits, '.', '_' and '-'")
        return value

    @field_validator("start")
    @classmethod
    def _start(cls, value: Start) -> Start:
        return start_checked(value)


class FileSection(Frozen):
    """A flow file."""

    version: Literal[1] = Field(default=1, description="Version of this file's format.")

    @field_validator("version", mode="before")
    @classmethod
    def _version(cls, value: Any) -> Any:
        if value != 1 or isinstance(value, bool):
            raise ValueError(f"expected 1{but(value)}")
        return value

    clusters: Annotated[dict[str, ClusterSection], Field(min_length=1)] = Field(
        description="Kafka clusters by name (the name is part of default target topic names)."
    )
    flows: Annotated[dict[str, FlowSection], Field(min_length=1)] = Field(
        description="Flows by name. The name is part of transactional ids and internal topics: a renamed "
        "flow is a new one."
    )
    spark: SparkSection = Field(default=SparkSection(), description="Where commands that use Spark run it.")
    metrics: MetricsSection = Field(default=MetricsSection(), description="Where `run` answers about itself over HTTP.")


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a flow file (draft 2020-12). Properties may be written as numbers and booleans too."""
    schema = FileSection.model_json_schema(mode="validation")
    properties = schema["$defs"]["ClusterSection"]["properties"]["properties"]
    properties["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    schema["$defs"]["FlowSection"]["properties"]["lanes"]["default"] = LANES_SCHEMA["default"]  # as it is written
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {**head, **schema, "title": "eos-replicate flow file"}
