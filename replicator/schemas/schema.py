"""Versions of schemas as a Confluent-compatible registry keeps them, and what makes two of them the same. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
DEFAULT_CONTEXT = "."


class UnreadableSchema(ValueError):
    """What a registry has answered isn't a schema."""


class Version(NamedTuple):
    """A version of a subject: what has one id, and one schema."""

    subject: str
    number: int

    def __str__(self) -> str:
        return f"{self.subject} version {self.number}"


class Reference(NamedTuple):
    """A schema that another one refers to. `name`: as that one's text calls it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A version with its schema. `rest`: what else belongs to its content (metadata, ruleSet), as canonical JSON."""

    version: Version
    id: int
    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()
    rest: str = ""
    deleted: bool = False

    def same_content(self, other: Schema) -> bool:
        """Return whether both say the same. How JSON is written doesn't count, for registries write it anew."""
        if (self.kind, self.rest) != (other.kind, other.rest) or self._named() != other._named():
            return False
        return self.text == other.text or _canonical(self.kind, self.text) == _canonical(other.kind, other.text)

    def _named(self) -> set[tuple[str, Version]]:
        return {(it.name, target) for it, target in zip(self.references, self.refers_to, strict=True)}

    @property
    def refers_to(self) -> tuple[Version, ...]:
        """The versions that it refers to, by the full names of their subjects."""
        context = context_of(self.version.subject)
        return tuple(Version(_in_context(it.subject, context), it.version) for it in self.references)

    @property
    def place(self) -> tuple[str, int]:
        """Its id, with the context in which it is one."""
        return context_of(self.version.subject), self.id


@dataclass(frozen=True, slots=True)
class Registry:
    """What a registry has. `levels`: the compatibility levels of subjects that have one of their own, as far as they
    were asked for."""

    schemas: Mapping[Version, Schema] = field(default_factory=dict)
    levels: Mapping[str, str] = field(default_factory=dict)

    @property
    def subjects(self) -> set[str]:
        """All subjects, also those whose versions are soft-deleted."""
        return {at.subject for at in self.schemas}


def context_of(subject: str) -> str:
    """Return the context of a subject (`:.context:subject`), in which ids are unique."""
    if subject.startswith(":.") and (end := subject.find(":", 2)) > 0:
        return subject[1:end] or DEFAULT_CONTEXT
    return DEFAULT_CONTEXT


def _in_context(subject: str, context: str) -> str:
    """Return the full name of a subject that is named in a schema of this context."""
    if subject.startswith(":.") or context == DEFAULT_CONTEXT:
        return subject
    return f":{context}:{subject}"


def _canonical(kind: str, text: str) -> str:
    if kind == PROTOBUF:
        return " ".join(text.split())
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def schema_from(body: Any, *, deleted: bool = False) -> Schema:
    """Read a schema from a registry's answer. Raises UnreadableSchema."""
    try:
        references = tuple(
            Reference(_text(it["name"]), _text(it["subject"]), _number(it["version"]))
            for it in body.get("references") or ()
        )
        rest = {key: body[key] for key in ("metadata", "ruleSet") if body.get(key)}
        return Schema(
            Version(_text(body["subject"]), _number(body["version"])),
            _number(body["id"]),
            _text(body["schema"]),
            _text(body.get("schemaType") or AVRO),
            references,
            json.dumps(rest, sort_keys=True) if rest else "",
            deleted or body.get("deleted") is True,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnreadableSchema(f"not a version of a schema: {error!r}") from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, not {value!r}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"expected a number, not {value!r}")
    return value


def body_of(schema: Schema) -> dict[str, Any]:
    """Return what is sent to register it under its own id and version."""
    body: dict[str, Any] = {"schema": schema.text, "id": schema.id, "version": schema.version.number}
    if schema.kind != AVRO:
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [it._asdict() for it in schema.references]
    if schema.rest:
        body |= json.loads(schema.rest)
    return body
