"""configs/*.yaml and the JSON schema say what the models say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from replicator.config import Config, FileSection, json_schema, load
from replicator.config.sections import ClusterSection, FlowSection

CONFIGS = Path(__file__).parents[3] / "configs"
ENV = {"BERLIN_SERVERS": "berlin:1", "FRANKFURT_SERVERS": "frankfurt:1", "BERLIN_PASSWORD": "x"}
REQUIRED = {"source", "target", "topics"}


@pytest.fixture(scope="module")
def reference() -> Any:
    return yaml.safe_load((CONFIGS / "reference.yaml").read_text(encoding="utf-8"))


def keys(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_every_example_loads(name: str) -> None:
    assert isinstance(load(CONFIGS / name, ENV), Config)


def test_the_reference_has_every_key(reference: Any) -> None:
    assert set(reference) == keys(FileSection)
    assert set(reference["clusters"]["berlin"]) == keys(ClusterSection)
    flow = reference["flows"]["orders"]
    assert set(flow) == keys(FlowSection)
    for key, field in FlowSection.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            assert set(flow[key]) == keys(field.annotation), key


def test_the_reference_shows_the_defaults(reference: Any) -> None:
    written = load(CONFIGS / "reference.yaml", ENV).flows["orders"]
    for key, field in FlowSection.model_fields.items():
        if key in REQUIRED:
            assert field.is_required(), key
        else:
            assert getattr(written, key) == field.default, key
    assert reference["version"] == FileSection.model_fields["version"].default
    default = ClusterSection.model_fields["allow_plaintext_password"].default
    assert reference["clusters"]["berlin"]["allow_plaintext_password"] == default


def described(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for definition in (schema, *schema["$defs"].values()):
        for key, value in definition.get("properties", {}).items():
            refers_to = schema["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
            yield f"{definition['title']}.{key}", {**refers_to, **value}


def test_the_schema_describes_every_key() -> None:
    schema = json_schema()
    assert [path for path, value in described(schema) if "description" not in value] == []
    assert schema["title"] == "eos-replicate flow file"
    assert schema["additionalProperties"] is False
    limits = schema["$defs"]["Limits"]["properties"]
    assert limits["transaction_timeout_ms"]["default"] == 60_000
