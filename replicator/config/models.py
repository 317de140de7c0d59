"""What a flow file says, as frozen models. `sections.py` has the same settings as they are written in YAML.

Descriptions here are the reference: `eos-replicate schema` prints them, and a test holds
configs/reference.yaml to the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_serializer

from replicator.config.failover_settings import FailoverSettings
from replicator.config.group_settings import GroupSettings
from replicator.config.policies import DecisionPolicy
from replicator.config.registry_settings import SchemaRegistrySettings
from replicator.config.units import BYTES, MILLISECONDS
from replicator.model.delivery import Delivery

Queue = Annotated[int, Field(strict=True, ge=1024, le=2047 * 1024**2), BYTES]
"""Within the bounds of librdkafka's queued.max.messages.kbytes."""

HOUR_MS = 3_600_000
HIDDEN = "[hidden]"
RECORD_BYTES_MAX = 8 * 1024 * 1024


class Frozen(BaseModel):
    """Base of all models: unknown keys refused, nothing changes after load."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Start(Frozen):
    """Where a partition without a position begins."""

    kind: Literal["earliest", "latest", "timestamp"] = Field(default="earliest", description="Kind of start.")
    timestamp_ms: int = Field(
        default=-1,
        strict=True,
        ge=-1,
        le=253_402_300_799_999,  # the year 9999
        description="For kind timestamp: milliseconds since 1970 UTC; the first record at or after it.",
    )


class Commit(Frozen):
    """When a transaction ends: whichever comes first."""

    interval_ms: Annotated[int, Field(strict=True, ge=1, le=HOUR_MS), MILLISECONDS] = Field(
        default=1000, description="Longest time that a transaction stays open, from its first record."
    )
    linger_ms: Annotated[int, Field(strict=True, ge=0, le=HOUR_MS), MILLISECONDS] = Field(
        default=3,
        description="Shortest time that a transaction stays open, from its first record, for others to come: a longer "
        "one makes fewer commits, which cost both clusters and the worker less, and records arrive later. What a "
        "transaction costs: [sizing](../operate/sizing.md).",
    )
    records_max: Annotated[int, Field(strict=True, ge=1, le=100_000_000)] = Field(
        default=100_000, description="Most records in one transaction."
    )
    bytes_max: Annotated[int, Field(strict=True, ge=1, le=10 * 1024**3), BYTES] = Field(
        default=33_554_432, description="Most bytes of keys, values and headers in one transaction."
    )


def _not_zero(value: int) -> int:
    if value == 0:
        raise ValueError("expected -1 (the target's default) or at least 1, not 0")
    return value


LANES_AUTO, LANES_MAX = 0, 1000
"""In the place of a number of lanes: as many as the flow has, see `state.own_file.lanes_wanted`."""


class TopicConfigs(Frozen):
    """How target topics are created, and kept."""

    extra: tuple[str, ...] = Field(
        default=(), description="Topic configs copied besides the standard ones, e.g. min.insync.replicas."
    )
    replication_factor: Annotated[int, Field(strict=True, ge=-1, le=32767), AfterValidator(_not_zero)] = Field(
        default=-1,
        description="Replicas of created topics, the flow's own, too; -1 takes the target's default.",
    )
    sync: bool = Field(
        default=False,
        strict=True,
        description="Whether `run` sets these configs on existing target topics, too, where the source topic has other "
        "values: at each discovery; message.timestamp.type only if `extra` names it, max.message.bytes only upwards.",
    )


class Limits(Frozen):
    """Bounds on memory and on waiting."""

    fetch_queue_bytes_max: Queue = Field(
        default=33_554_432, description="Fetched bytes a lane holds before it stops fetching."
    )
    produce_queue_bytes_max: Queue = Field(default=33_554_432, description="Unacknowledged bytes a lane holds at most.")
    record_bytes_max: Annotated[int, Field(strict=True, ge=1024, le=1_000_000_000), BYTES] = Field(
        default=RECORD_BYTES_MAX, description="Largest record (batch) a lane reads or writes, in bytes."
    )
    transaction_timeout_ms: Annotated[int, Field(strict=True, ge=1000, le=24 * HOUR_MS), MILLISECONDS] = Field(
        default=60_000,
        description="The target aborts a transaction that is open for longer; at most its own maximum.",
    )
    request_timeout_ms: Annotated[int, Field(strict=True, ge=1000, le=900_000), MILLISECONDS] = Field(
        default=30_000, description="Longest wait for the reply to one request."
    )
    connect_timeout_ms: Annotated[int, Field(strict=True, ge=1000, le=HOUR_MS), MILLISECONDS] = Field(
        default=15_000,
        description="Longest wait for a cluster's first answer, and for topics and generation to be ready after it.",
    )
    stop_timeout_ms: Annotated[int, Field(strict=True, ge=1, le=HOUR_MS), MILLISECONDS] = Field(
        default=10_000,
        description="The process is gone this long after it was asked to stop; until shortly before, lanes finish "
        "their open transactions.",
    )
    discovery_interval_ms: Annotated[int, Field(strict=True, ge=100, le=24 * HOUR_MS), MILLISECONDS] = Field(
        default=30_000,
        description="How often topics are listed and the flow's generation is checked; a flow that has ended is "
        "started again this long after, while another one of the process runs.",
    )
    session_timeout_ms: Annotated[int, Field(strict=True, ge=1000, le=120_000), MILLISECONDS] = Field(
        default=10_000,
        description="The lanes of a worker that is gone without a word go on elsewhere this long after. Within the "
        "target's own bounds: group.min.session.timeout.ms (6 s unless it is set) and group.max.session.timeout.ms.",
    )
    recommit_interval_ms: Annotated[int, Field(strict=True, ge=1000, le=24 * HOUR_MS), MILLISECONDS] = Field(
        default=3_600_000, description="How often idle positions are committed again so as not to expire."
    )


class RateSettings(Frozen):
    """How fast a flow may copy."""

    records_per_s: Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)] = Field(
        default=0, description="Most records a second that the flow copies, of all its topics; 0: no limit."
    )
    bytes_per_s: Annotated[int, Field(strict=True, ge=0, le=10**12), BYTES] = Field(
        default=0, description="Most bytes of keys, values and headers a second; 0: no limit."
    )


class FlowSettings(Frozen):
    """Settings of a flow that read the same in YAML and in the program."""

    topics: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="Topics to copy: names, or regular expressions when they start with ^ (the whole name "
        "must match). "
        "Topics that start with two underscores are never copied."
    )
    exclude: tuple[str, ...] = Field(default=(), description="Topics left out, written like topics.")
    rename: str = Field(
        default="{source}.{topic}",
        description="Name of the target topic. {source}, {target}: names of the clusters, {flow}, {topic}.",
    )
    delivery: Delivery = Field(
        default=Delivery.EXACTLY_ONCE,
        description="exactly_once, at_least_once (may double) or at_most_once (may lose).",
    )
    engine: Literal["auto", "batches", "records"] = Field(
        default="records",
        description="How records are carried. records: one by one, by librdkafka. batches (experimental): record "
        "batches as they are, for less CPU; exactly_once only. auto: batches, unless the flow asks for something that "
        "they can't honour; `plan` and `status` say for what. It can be changed at any time.",
    )
    start: Start = Field(
        default=Start(),
        description="Where the partitions listed when the flow is first opened begin: earliest, latest, or a "
        "time with zone such as 2026-01-31T12:00:00Z. Later partitions begin at earliest.",
    )
    commit: Commit = Field(default=Commit(), description="When a transaction ends.")
    lanes: Annotated[int, Field(strict=True, ge=LANES_AUTO, le=LANES_MAX)] = Field(
        default=LANES_AUTO,
        description="Transactional producers among which the partitions are shared out, and which workers share. auto: "
        "one for each 32 partitions when the flow is first opened, at most 8; then it stays so.",
    )
    new_topics: Literal["copy", "ignore"] = Field(
        default="copy", description="A matching topic that appears while the flow runs."
    )
    new_partitions: Literal["copy", "stop"] = Field(
        default="copy",
        description="Partitions added at the source, at start or while the flow runs: copy (the target topic grows "
        "first), or stop all partitions of that topic until somebody decides.",
    )
    deleted_topics: Literal["stop", "report", "keep"] = Field(
        default="stop",
        description="A copied topic that is deleted at the source: stop its partitions until somebody decides, since "
        "records may have gone with it that were never copied; report it as waiting; or keep the copy without a word. "
        "The copy and the positions stay in any case, and a topic that is created again under the name stops.",
    )
    topic_configs: TopicConfigs = Field(default=TopicConfigs(), description="How target topics are created, and kept.")
    sync_acls: bool = Field(
        default=False,
        strict=True,
        description="Whether `run` gives who may read a source topic the same rights on the target topic, at each "
        "discovery: Read, Describe and DescribeConfigs, allowed or denied, by name or prefix.",
    )
    limits: Limits = Field(default=Limits(), description="Bounds on memory and on waiting.")
    heartbeat: Annotated[int, Field(strict=True, ge=0, le=HOUR_MS), MILLISECONDS] = Field(
        default=0,
        description="How often `run` writes a small record to a topic of its own at the source, and measures when a "
        "read_committed reader of the target gets the copy; 0: never.",
    )
    consolidate_map: bool = Field(
        default=False,
        strict=True,
        description="Whether `run` puts the blocks of the offset map into its index, and deletes them then: the map "
        "takes a fraction of the space, and offsets are translated without reading all of it.",
    )
    groups: GroupSettings = Field(
        default=GroupSettings(), description="Consumer groups whose offsets are kept at the target, translated."
    )
    failover: FailoverSettings = Field(
        default=FailoverSettings(), description="Commands that `eos-replicate failover` runs at its steps."
    )
    schema_registry: SchemaRegistrySettings = Field(
        default=SchemaRegistrySettings(),
        description="Schema registries of both sides, whose schemas go over with their ids.",
    )
    rate: RateSettings = Field(
        default=RateSettings(), description="How fast `run` may copy, until an operator sets another rate."
    )
    revision: Annotated[int, Field(strict=True, ge=0, le=10**12)] = Field(
        default=0,
        description="For workers that share the flow: of two files the one with the higher revision holds. 0: a file "
        "that the flow has never had holds.",
    )
    policy: DecisionPolicy = Field(
        default=DecisionPolicy(), description="What `run` decides about incidents by itself, and how much of it."
    )


class Properties(Mapping[str, str]):
    """Client properties with secrets resolved. Printing it never shows a secret."""

    def __init__(self, values: Mapping[str, str], hidden: frozenset[str] = frozenset()) -> None:
        self._values = dict(values)
        self._hidden = hidden

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def shown(self) -> dict[str, str]:
        """Return the properties with every secret replaced, for people and logs."""
        return {key: HIDDEN if key in self._hidden else value for key, value in self._values.items()}

    def __repr__(self) -> str:
        return repr(self.shown())


class Cluster(Frozen):
    """A cluster by its name in the file."""

    name: str
    properties: Properties
    allow_plaintext_password: bool = False
    token_command: tuple[str, ...] = ()
    token_timeout_ms: int = 10_000
    token_life_ms: int = 300_000
    files: tuple[tuple[str, str], ...] = Field(default=(), exclude=True, repr=False)
    """Those that the properties name, see `outside_files`."""

    @field_serializer("properties")
    def _dumped(self, properties: Properties) -> dict[str, str]:
        return properties.shown()

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The addresses, lower-cased, each with its port."""
        return servers(self.properties["bootstrap.servers"])

    @property
    def compression(self) -> str:
        """How its properties want records compressed that are written there; empty if they don't say."""
        given = self.properties
        return given.get("compression.type", given.get("compression.codec", ""))


class Flow(FlowSettings):
    """A flow with its clusters looked up."""

    name: str
    source: Cluster
    target: Cluster


class SparkSection(Frozen):
    """Where commands that use Spark run it. The daemon ignores it."""

    master: Annotated[str, Field(min_length=1)] = Field(
        default="local[*,4]",
        description="Spark's master URL. local[*,4]: this machine, all cores, each task tried up to four times.",
    )
    conf: dict[str, str] = Field(
        default={}, description="Spark's own properties, by their names (spark.driver.memory, ...)."
    )


class MetricsSection(Frozen):
    """Where `run` answers about itself over HTTP."""

    listen: str = Field(
        default="",
        description="HOST:PORT for the status page, /metrics (Prometheus), /healthz and /readyz, such as "
        "127.0.0.1:9308. "
        "Empty: none of them.",
    )
    token: Annotated[str, Field(repr=False)] = Field(
        default="",
        description="Who asks must know it: as a bearer token, or as the password of any user. Needed where `listen` "
        "is no loopback address. ${NAME} stands for an environment variable, file:PATH for the content of a file.",
    )
    partitions_max: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = Field(
        default=10_000, description="A flow with more partitions than this has metrics of the flow and its lanes only."
    )
    lag_interval_ms: Annotated[int, Field(strict=True, ge=100, le=HOUR_MS), MILLISECONDS] = Field(
        default=5000, description="How often the source is asked for the ends of its partitions, for the lag."
    )

    @field_serializer("token")
    def _hidden(self, token: str) -> str:
        return HIDDEN if token else ""


class Config(Frozen):
    """A whole flow file."""

    clusters: dict[str, Cluster]
    flows: dict[str, Flow]
    spark: SparkSection = SparkSection()
    metrics: MetricsSection = MetricsSection()
    registry_files: tuple[str, ...] = Field(default=(), exclude=True, repr=False)
    """Those that schema registries are logged in to with."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files beside it that hold what its clusters and registries log in with."""
        named = (path for cluster in self.clusters.values() for path, _ in cluster.files)
        return tuple(dict.fromkeys((*named, *self.registry_files)))


def servers(text: str) -> tuple[str, ...]:
    """Split `bootstrap.servers`; drop a `PLAINTEXT://` prefix and add the default port 9092."""
    found: list[str] = []
    for part in text.split(","):
        address = part.strip().lower().rpartition("://")[2]
        if not address:
            continue
        has_port = address.rpartition(":")[2].isdigit() and (address.count(":") == 1 or "]:" in address)
        found.append(address if has_port else f"{address}:9092")
    return tuple(found)
