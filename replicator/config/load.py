"""Flow file → `Config`. Every fault is found in one go, with key path and line; nothing is connected."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from replicator.config import librdkafka, metrics, properties, registries, routing, token_command
from replicator.config.engine import not_honoured
from replicator.config.messages import faults_of, suggestion
from replicator.config.models import Cluster, Config, Flow, MetricsSection, SparkSection
from replicator.config.outside_files import outside_files
from replicator.config.registry_settings import SchemaRegistrySettings
from replicator.config.sections import (
    CLUSTER_NAME,
    FLOW_NAME,
    ClusterSection,
    FileSection,
    FlowSection,
)
from replicator.config.source import Document, Fault, Path, but, parse
from replicator.config.token_command import TokenCommandSettings
from replicator.config.units import MILLISECONDS
from replicator.model.counting import counted
from replicator.model.delivery import Delivery
from replicator.model.errors import ConfigError
from replicator.model.nearest import nearest

FILE_BYTES_MAX = 1024 * 1024
_EMPTY_SECTIONS = {
    "clusters": {"_": {"properties": {}}},
    "flows": {"_": {"source": "_", "target": "_", "topics": ["_"]}},
}
"""Stand in for sections that are checked one by one."""
Model = TypeVar("Model", bound=BaseModel)


class FlowFileError(ConfigError):
    """The flow file is wrong. `faults` holds each error, in the order of their lines; `files` those that it names, as
    `Config.files`, also where they can't be read."""

    def __init__(self, name: str, faults: list[Fault], files: Sequence[str] = ()) -> None:
        self.name = name
        self.faults = faults
        self.files = tuple(files)
        lines = "\n".join(f"  {fault}" for fault in faults)
        super().__init__(f"{name}: {counted(len(faults), 'error')}\n{lines}")


def load(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> Config:
    """Read and check a flow file.

    Args:
        path: the YAML file.
        env: where `${NAME}` comes from; the process environment by default.

    Raises:
        ConfigError: with every fault of the file, each with key path and line.
    """
    file = FilePath(path)
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{file}: larger than {FILE_BYTES_MAX} bytes")
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start})") from error
    return load_text(text, env=env, name=str(file), directory=file.parent)


def load_text(
    text: str,
    *,
    env: Mapping[str, str] | None = None,
    name: str = "<text>",
    directory: FilePath = FilePath("."),
) -> Config:
    """Load a flow file as `load` does, from text at hand. `directory` is where `file:` paths begin."""
    document = parse(text)
    config: Config | None = None
    files: Sequence[str] = ()
    if document.data is None and not document.faults:
        document.fault((), "empty: clusters and flows are needed", line=1)
    elif document.data is not None:
        reader = _Reader(document, os.environ if env is None else env, directory)
        config, files = reader.config(), reader.files
    if document.faults or config is None:
        raise FlowFileError(name, sorted(set(document.faults)), files)
    return config


class _Reader:
    """Validates section by section, so that a fault in one hides none in another."""

    def __init__(self, document: Document, env: Mapping[str, str], directory: FilePath) -> None:
        self._document = document
        self._env = env
        self._directory = directory
        self._cluster_files: list[str] = []
        self._registry_files: list[str] = []

    @property
    def files(self) -> Sequence[str]:
        """Those that clusters and registries name, also where something is wrong with them."""
        return tuple(dict.fromkeys((*self._cluster_files, *self._registry_files)))

    def config(self) -> Config | None:
        """Read the whole file, as far as it is right; faults are noted in the document."""
        data = self._document.data
        if not isinstance(data, dict):
            self._document.fault((), "expected the keys clusters and flows")
            return None
        rest = {key: value for key, value in data.items() if key not in ("clusters", "flows")}
        if isinstance(rest.get("spark"), dict) and isinstance(rest["spark"].get("conf"), dict):
            conf = self._as_written(rest["spark"]["conf"], ("spark", "conf"))
            rest = {**rest, "spark": {**rest["spark"], "conf": conf}}
        whole = self._section(FileSection, {**rest, **_EMPTY_SECTIONS}, ())
        clusters = self._named(data, "clusters", CLUSTER_NAME.pattern)
        flows = self._named(data, "flows", FLOW_NAME.pattern)
        read_clusters = {name: self._cluster(name, value) for name, value in clusters.items()}
        read_flows = {name: self._flow(name, value, read_clusters) for name, value in flows.items()}
        good_flows = {
            name: flow
            for name, flow in read_flows.items()
            if flow is not None
            and self._rename_tells_apart(flow)
            and self._commits_in_time(flow)
            and self._engine_can(flow)
            and self._groups_can(flow)
        }
        for conflict in routing.conflicts(good_flows.values()):
            self._document.fault(("flows", conflict.flow), conflict.message)
        good_clusters = {name: cluster for name, cluster in read_clusters.items() if cluster is not None}
        spark = whole.spark if whole else SparkSection()
        shown = self._metrics(whole.metrics, rest.get("metrics")) if whole else MetricsSection()
        return Config(
            clusters=good_clusters,
            flows=good_flows,
            spark=spark,
            metrics=shown,
            registry_files=tuple(self._registry_files),
        )

    def _metrics(self, section: MetricsSection, written: Any) -> MetricsSection:
        """Return the section with its token looked up. `written`: as it stands in the file."""
        token, problems = metrics.token(written, self._env, self._directory)
        problems += metrics.check(section, token_written=bool(token or problems))
        for problem in problems:
            self._document.fault(("metrics", problem.key), problem.message)
        return section.model_copy(update={"token": token})

    def _named(self, data: dict[str, Any], key: str, pattern: str) -> dict[str, Any]:
        """Return the mapping of sections under `key`, with their names checked."""
        value = data.get(key)
        if value is None and any(nearest(other, FileSection.model_fields) == key for other in data if other != key):
            return {}  # it is misspelt, which its unknown key says
        if not isinstance(value, dict) or not value:
            self._document.fault((key,), f"expected at least one of the {key} by name")
            return {}
        for name in value:
            if not re.fullmatch(pattern, name):
                allowed = "letters, digits, '_' and '-'" + (" and '.'" if key == "clusters" else "")
                self._document.fault((key, name), f"a name has {allowed}, and at most 100 characters")
        return value

    def _section(self, model: type[Model], data: Any, path: Path) -> Model | None:
        """Read one section through its model; its faults are noted with their lines."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for where, message in faults_of(model, error.errors(include_url=False)):
                self._document.fault((*path, *where), message)
        return None

    def _cluster(self, name: str, data: Any) -> Cluster | None:
        path: Path = ("clusters", name)
        if isinstance(data, dict) and isinstance(data.get("properties"), dict):
            data = {**data, "properties": self._as_written(data["properties"], (*path, "properties"))}
        section = self._section(ClusterSection, data, path)
        written = data.get("properties") if isinstance(data, dict) else None
        if not isinstance(written, dict):
            return None  # the section has this fault already
        raw = {key: value for key, value in written.items() if isinstance(value, str)}
        allowed = section.allow_plaintext_password if section else True
        resolved, problems = properties.resolve(raw, self._env, self._directory)
        files = outside_files(raw, resolved, self._directory)
        self._cluster_files += [each for each, _ in files]
        problems += properties.check(raw, resolved, written, allow_plaintext_password=allowed)
        problems += librdkafka.further_problems(
            raw, resolved, {*(each.key for each in problems), *(written - raw.keys())}
        )
        for problem in problems:
            self._document.fault((*path, "properties", *([problem.key] if problem.key else [])), problem.message)
        tokens = section.model_dump(include=set(TokenCommandSettings.model_fields)) if section else {}
        against = list(token_command.check(tokens.get(token_command.KEY, ()), resolved))
        for problem in against:
            self._document.fault((*path, problem.key), problem.message)
        if problems or against or section is None:
            return None
        return Cluster(name=name, properties=resolved, allow_plaintext_password=allowed, files=files, **tokens)

    def _as_written(self, data: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return properties as they are written, since they are text to librdkafka: `0123` stays `0123` and `yes` stays
        `yes`.
        """
        raw = self._document.raw
        return {key: value if value is None else raw.get((*path, key), value) for key, value in data.items()}

    def _flow(self, name: str, data: Any, clusters: Mapping[str, Cluster | None]) -> Flow | None:
        path: Path = ("flows", name)
        if isinstance(data, dict):
            sides = {side: data[side] for side in ("source", "target") if side in data}
            unknown = {side for side, value in sides.items() if not self._known_cluster(value, clusters, (*path, side))}
            data = {**data, **dict.fromkeys(unknown, "_")}  # so that the section has no second fault of them
            data = self._registries_as_written(data, path)
        section = self._section(FlowSection, data, path)
        if section is None:
            return None
        source, target = clusters.get(section.source), clusters.get(section.target)
        if source is None or target is None:
            return None
        settings = {field: getattr(section, field) for field in FlowSection.model_fields}
        registry = self._registries(section.schema_registry, (*path, "schema_registry"))
        if registry is None:
            return None
        settings["schema_registry"] = registry
        return Flow(**{**settings, "name": name, "source": source, "target": target})

    def _registries_as_written(self, data: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return a flow's section with the texts of its registries as they are written: a password is text, whatever it
        looks like.
        """
        written = data.get("schema_registry")
        if not isinstance(written, dict):
            return data
        sides = {}
        for side, keys in ((side, written[side]) for side in registries.SIDES if isinstance(written.get(side), dict)):
            texts = {key: value for key, value in keys.items() if key in registries.TEXTS}
            sides[side] = {**keys, **self._as_written(texts, (*path, "schema_registry", side))}
        return {**data, "schema_registry": {**written, **sides}}

    def _registries(self, section: SchemaRegistrySettings, path: Path) -> SchemaRegistrySettings | None:
        """Return a flow's registries with their secrets looked up; None where something is wrong with them."""
        good, sides = True, {}
        for side in registries.SIDES:
            sides[side], problems, files = registries.looked_up(getattr(section, side), self._env, self._directory)
            self._registry_files += files
            for problem in problems:
                good = False
                self._document.fault((*path, side, problem.key), problem.message)
        found = section.model_copy(update=sides)
        if good and (fault := registries.pair_fault(found)):
            good = False
            self._document.fault(path, fault)
        return found if good else None

    def _known_cluster(self, name: Any, clusters: Mapping[str, Cluster | None], path: Path) -> bool:
        """Return whether `name` names a cluster of the file. Without clusters the fault is there."""
        known = ", ".join(clusters)
        if not known or (isinstance(name, str) and name in clusters):
            return True
        if isinstance(name, str) and name:
            message = f"no cluster is named {name!r}{suggestion(name, clusters) or f'; there are: {known}'}"
        else:
            message = f"expected the name of a cluster ({known}){but(name)}"
        self._document.fault(path, message)
        return False

    def _rename_tells_apart(self, flow: Flow) -> bool:
        """Check that only one source topic may be selected where {topic} isn't in the name."""
        if "{topic}" in flow.rename or (len(flow.topics) == 1 and not flow.topics[0].startswith("^")):
            return True
        message = "needs {topic}: without it all topics of the flow would be written to one"
        self._document.fault(("flows", flow.name, "rename"), message)
        return False

    def _engine_can(self, flow: Flow) -> bool:
        """Check that `batches` honours all that the flow asks for."""
        against = not_honoured(flow) if flow.engine == "batches" else ()
        if against:
            message = f"batches can't honour {'; '.join(against)}: take records, or auto"
            self._document.fault(("flows", flow.name, "engine"), message)
        return not against

    def _groups_can(self, flow: Flow) -> bool:
        """Check that a flow that syncs groups has the offset map, by which they are translated."""
        if not flow.groups.synced or flow.delivery is Delivery.EXACTLY_ONCE:
            return True
        message = (
            f"needs delivery: exactly_once: with {flow.delivery.value} nothing says where a record is at the target"
        )
        self._document.fault(("flows", flow.name, "groups"), message)
        return False

    def _commits_in_time(self, flow: Flow) -> bool:
        """Check that a transaction ends before the target aborts it."""
        interval_ms, timeout_ms = flow.commit.interval_ms, flow.limits.transaction_timeout_ms
        linger_ms = flow.commit.linger_ms
        if linger_ms > interval_ms and "linger_ms" in flow.commit.model_fields_set:
            message = f"must not be more than commit.interval_ms, which is {interval_ms}, not {linger_ms}"
            self._document.fault(("flows", flow.name, "commit", "linger_ms"), message)
            return False
        if interval_ms < timeout_ms:
            return True
        message = (
            f"must be less than limits.transaction_timeout_ms, which is {timeout_ms} "
            f"({MILLISECONDS.text(timeout_ms)}), not {interval_ms}"
        )
        self._document.fault(("flows", flow.name, "commit", "interval_ms"), message)
        return False
