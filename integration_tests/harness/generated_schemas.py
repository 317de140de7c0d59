"""Subjects of a registry, generated: schemas of all three kinds that refer to earlier ones, in several versions, some
under several subjects, some soft-deleted, some with a compatibility level of their own."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

from integration_tests.harness.schema_registry import Registry

REFERRING, SHARED, DELETED, LEVELED = 0.5, 0.1, 0.1, 0.2
LEVELS = ("FULL", "NONE", "FORWARD_TRANSITIVE")


def generate(registry: Registry, subjects: int, seed: int = 1, prefix: str = "") -> None:
    """Register so many subjects, as producers would."""
    draw = random.Random(seed)
    known: dict[str, list[tuple[str, int]]] = {"AVRO": [], "JSON": [], "PROTOBUF": []}
    texts: list[tuple[str, dict[str, Any]]] = []
    gone: list[tuple[str, int]] = []
    for number in range(subjects):
        subject = f"{prefix}topic.{draw.randrange(10**6)}/é {number}-value"
        kind = draw.choice(("AVRO", "AVRO", "JSON", "PROTOBUF"))
        if texts and draw.random() < SHARED:
            text, more = draw.choice(texts)
            _register(registry, subject, text, more)
            continue
        for version in range(1, draw.choice((1, 1, 2, 3)) + 1):
            referred = draw.sample(known[kind], min(len(known[kind]), draw.choice((1, 2))))
            references = referred if draw.random() < REFERRING else []
            text, more = _schema(kind, f"r{number}", version, references)
            _register(registry, subject, text, more)
            texts.append((text, more))
            if version > 1 and draw.random() < DELETED:
                gone.append((subject, version - 1))
        known[kind].append((subject, version))
        if draw.random() < LEVELED:
            registry.answer("PUT", f"/config/{_quoted(subject)}", {"compatibility": draw.choice(LEVELS)})
    for subject, version in gone:
        registry.answer("DELETE", f"/subjects/{_quoted(subject)}/versions/{version}", None)


def _register(registry: Registry, subject: str, text: str, more: dict[str, Any]) -> None:
    status, found = registry.answer("POST", f"/subjects/{_quoted(subject)}/versions", {"schema": text, **more})
    assert status == 200, found


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _schema(kind: str, name: str, version: int, referred: list[tuple[str, int]]) -> tuple[str, dict[str, Any]]:
    fields = [f"f{number}" for number in range(version)]
    references = [
        {"name": f"Ref{at}" if kind == "AVRO" else f"ref{at}", "subject": subject, "version": number}
        for at, (subject, number) in enumerate(referred)
    ]
    more: dict[str, Any] = {"references": references} if references else {}
    if kind == "AVRO":
        typed: list[dict[str, Any]] = [{"name": each, "type": "string"} for each in fields]
        typed += [{"name": f"x{at}", "type": it["name"]} for at, it in enumerate(references)]
        return json.dumps({"type": "record", "name": name, "fields": typed}), more
    if kind == "JSON":
        properties: dict[str, Any] = {each: {"type": "string"} for each in fields}
        properties |= {f"x{at}": {"$ref": it["name"]} for at, it in enumerate(references)}
        return json.dumps({"title": name, "properties": properties}), {"schemaType": "JSON", **more}
    imports = "".join(f'import "{it["name"]}";\n' for it in references)
    lines = "".join(f"  string {each} = {number};\n" for number, each in enumerate(fields, 1))
    text = f'syntax = "proto3";\n{imports}message {name} {{\n{lines}}}\n'
    return text, {"schemaType": "PROTOBUF", **more}
