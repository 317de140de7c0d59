"""`schema_registry` of a flow: the schema registries of both sides, and how schemas get from one to the other."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, field_serializer

from replicator.config.patterns import TOPIC_NAME, matches, name_or_pattern
from replicator.config.units import MILLISECONDS

_HIDDEN = "[hidden]"
SECRETS = ("password", "token", "key_password")
FILES = ("ca_file", "certificate_file", "key_file")
API: Literal["api"] = "api"
TOPIC: Literal["topic"] = "topic"


def _topic(item: str) -> str:
    if not TOPIC_NAME.fullmatch(item) or item in (".", "..") or item.startswith("__"):
        raise ValueError(f"{item!r} is not the name of a topic that can be copied")
    return item


def _access(value: Any) -> Any:
    """Read the short form: a URL."""
    return {"url": value} if isinstance(value, str) else value


SubjectPattern = Annotated[str, AfterValidator(partial(name_or_pattern, of="subject"))]


class RegistryAccess(BaseModel):
    """How a schema registry is reached; a URL alone says the same as `{url: URL}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(default="", description="Address of the registry, such as https://registry.example:8081.")
    username: str = Field(default="", description="User of HTTP basic authentication.")
    password: str = Field(
        default="",
        repr=False,
        description="The user's password. ${NAME} stands for an environment variable, file:PATH for the content of a "
        "file; so it is with every key of this section.",
    )
    token: str = Field(default="", repr=False, description="Bearer token, in place of user and password.")
    ca_file: str = Field(
        default="",
        description="Certificates (PEM) that the registry's own must be signed by; empty: those that the system "
        "trusts. A relative path starts at the flow file's directory.",
    )
    certificate_file: str = Field(default="", description="Certificate (PEM) of the client, where one is asked for.")
    key_file: str = Field(default="", description="Its private key (PEM).")
    key_password: str = Field(default="", repr=False, description="Password of the private key.")
    allow_plaintext_password: bool = Field(
        default=False,
        strict=True,
        description="Allows a secret in this file, or sent without TLS, for hosts other than loopback.",
    )

    @field_serializer(*SECRETS)
    def _hidden(self, secret: str) -> str:
        return _HIDDEN if secret else ""


def _access_schema(side: str) -> dict[str, Any]:
    return {
        "anyOf": [{"type": "string"}, RegistryAccess.model_json_schema()],
        "default": "",
        "description": f"The schema registry of the {side} cluster: its URL, or keys, see below. Empty: none.",
    }


class SchemaRegistrySettings(BaseModel):
    """Schemas of a Confluent-compatible registry that go over to the target's, with their ids."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[RegistryAccess, BeforeValidator(_access), WithJsonSchema(_access_schema("source"))] = Field(
        default=RegistryAccess(), description="The schema registry of the source cluster."
    )
    target: Annotated[RegistryAccess, BeforeValidator(_access), WithJsonSchema(_access_schema("target"))] = Field(
        default=RegistryAccess(), description="The schema registry of the target cluster."
    )
    mode: Literal["api", "topic"] = Field(
        default=API,
        description="api: `run` registers the source's schemas at the target by HTTP, ids and versions as they are. "
        "topic: the registry's topic is copied as it is, for a target whose registry is empty and not in use yet.",
    )
    topic: Annotated[str, AfterValidator(_topic)] = Field(
        default="_schemas", description="With mode topic: the topic of the registry. Its copy has the same name."
    )
    include: Annotated[tuple[SubjectPattern, ...], Field(min_length=1)] = Field(
        default=("^.*",),
        description="With mode api: subjects whose schemas go over: names, or regular expressions when they start with "
        "^; all of a name must match. Schemas that they refer to go over as well.",
    )
    exclude: tuple[SubjectPattern, ...] = Field(default=(), description="Subjects left out, written like include.")
    interval_ms: Annotated[int, Field(strict=True, ge=100, le=3_600_000), MILLISECONDS] = Field(
        default=1000,
        description="With mode api: how often the source's registry is asked whether it has given out another id.",
    )

    @property
    def both(self) -> bool:
        """Whether both registries can be asked."""
        return bool(self.source.url and self.target.url)

    @property
    def synced(self) -> bool:
        """Whether schemas go over by the registries' API."""
        return self.mode == API and self.both

    @property
    def topics(self) -> tuple[str, ...]:
        """The registry's topic, where it is copied."""
        return (self.topic,) if self.mode == TOPIC else ()

    def selects(self, subject: str) -> bool:
        """Return whether the subject's schemas go over."""
        return matches(self.include, subject) and not matches(self.exclude, subject)
