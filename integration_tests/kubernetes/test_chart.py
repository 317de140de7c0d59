"""The Helm chart: what it renders is valid, carries the flow file unaltered, and wrong values are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from integration_tests.kubernetes import tools
from integration_tests.kubernetes.tools import Manifest, Schemas, template
from replicator import config

pytestmark = [pytest.mark.tier("long"), pytest.mark.timeout(1_800)]
VERSIONS = ("1.25", "1.30", "1.34")
CONFIG: dict[str, Any] = {
    "clusters": {
        "berlin": {"properties": {"bootstrap.servers": "berlin:9092"}},
        "frankfurt": {"properties": {"bootstrap.servers": "frankfurt:9092", "sasl.password": "${PASSWORD}"}},
    },
    "flows": {"orders": {"source": "berlin", "target": "frankfurt", "topics": ["^orders.*"], "rename": "copy.{topic}"}},
}
FULL: dict[str, Any] = {
    "image": {"repository": "registry.example/eos-replicate", "tag": "1.2.3", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "config": CONFIG,
    "secrets": ["passwords"],
    "env": [{"name": "TZ", "value": "UTC"}],
    "metrics": {
        "tokenSecret": {"name": "metrics", "key": "token"},
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    },
    "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
    "extraVolumeMounts": [{"name": "tls", "mountPath": "/etc/tls", "readOnly": True}],
    "podAnnotations": {"example.org/team": "data"},
    "podLabels": {"team": "data"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
}
MONITOR = "PodMonitor"  # of the Prometheus operator: Kubernetes has no schema of it


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Schemas:
    tools.build_helm()
    return Schemas(tmp_path_factory.mktemp("kubernetes"))


def rendered(directory: Path, **values: Any) -> dict[str, Manifest]:
    manifests, said = template(directory, **values)
    assert manifests, said
    return {each["kind"]: each for each in manifests}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "values", [{"config": CONFIG}, FULL, {"existingConfigMap": "mine"}], ids=["least", "full", "own"]
)
def test_it_is_valid(schemas: Schemas, tmp_path: Path, values: dict[str, Any], version: str) -> None:
    found = rendered(tmp_path, **values)
    schemas.check([each for kind, each in found.items() if kind != MONITOR], version)
    tools.lint(tmp_path, **values)


def test_a_field_that_kubernetes_has_not_would_be_found(schemas: Schemas, tmp_path: Path) -> None:
    deployment = rendered(tmp_path, config=CONFIG)["Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["liveness"] = {}
    with pytest.raises(AssertionError, match="liveness"):
        schemas.check([deployment], VERSIONS[0])


@pytest.mark.tier("default")
@pytest.mark.parametrize("token", ["", "metrics"])
def test_the_flow_file_is_what_was_given_and_where_to_listen(tmp_path: Path, token: str) -> None:
    found = rendered(tmp_path, config=CONFIG, metrics={"tokenSecret": {"name": token}})
    text = found["ConfigMap"]["data"]["flows.yaml"]
    loaded = config.load_text(text, env={"PASSWORD": "secret", "EOS_METRICS_TOKEN": "t0ken"})
    assert loaded.flows["orders"].topics == ("^orders.*",)
    assert loaded.clusters["frankfurt"].properties["sasl.password"] == "secret"
    assert loaded.metrics.listen == ("0.0.0.0:9308" if token else "127.0.0.1:9308")
    container = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert ("livenessProbe" in container) is bool(token), "who isn't on loopback can't ask"


def test_a_changed_flow_file_is_read_again_without_a_restart(tmp_path: Path) -> None:
    first, second = (
        rendered(tmp_path, config=CONFIG | {"flows": {name: CONFIG["flows"]["orders"]}})["Deployment"]
        for name in ("one", "two")
    )
    assert first == second
    (container,) = first["spec"]["template"]["spec"]["containers"]
    assert "--watch-config" in container["args"]
    (mount,) = container["volumeMounts"]
    assert "subPath" not in mount, "it would never be replaced"


def test_all_replicas_share_the_flows(tmp_path: Path) -> None:
    """A pod is ready when it runs its lanes. An incident doesn't hold up an update."""
    deployment = rendered(tmp_path, config=CONFIG, replicas=3, metrics={"tokenSecret": {"name": "metrics"}})[
        "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert deployment["spec"]["replicas"] == 3
    assert "--standalone" not in container["args"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz/lanes", "port": "metrics"}


def test_nothing_of_it_is_root_or_can_be_written(tmp_path: Path) -> None:
    pod = rendered(tmp_path, config=CONFIG)["Deployment"]["spec"]
    assert pod["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    pod = pod["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"config": CONFIG, "replicas": -1}, "replicas"),
        ({"config": CONFIG, "replica": 1}, "replica"),
        ({}, "set config to the flow file"),
        ({"config": CONFIG, "existingConfigMap": "mine"}, "not both"),
        ({"config": CONFIG | {"metrics": {"listen": "0.0.0.0:1"}}}, "config"),
        ({"config": CONFIG, "metrics": {"podMonitor": {"enabled": True}}}, "tokenSecret.name"),
        (
            {"existingConfigMap": "mine", "metrics": {"tokenSecret": {"name": "t"}, "podMonitor": {"enabled": True}}},
            "metrics.podMonitor needs config",
        ),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    manifests, refused = template(tmp_path, **values)
    assert manifests == []
    assert said in refused
