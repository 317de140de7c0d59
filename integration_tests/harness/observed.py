"""What a running `eos-replicate run` says of itself over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from integration_tests.harness.processes import wait_until

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
TIMEOUT_S = 30.0


class Observed:
    """Asks one process. `token`: sent with each request, if there is one."""

    def __init__(self, address: str, token: str = "") -> None:
        self._base, self._token = f"http://{address}", token

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, _, port = self._base.removeprefix("http://").rpartition(":")
        return host, int(port)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        """The status of an answer, and its body."""
        given = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        request = urllib.request.Request(self._base + path, headers={**given, **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def samples(self) -> Samples:
        """All metrics, by name and labels."""
        status, text = self.get("/metrics")
        assert status == 200, text
        families = text_string_to_metric_families(text)
        return {(each.name, frozenset(each.labels.items())): each.value for f in families for each in f.samples}

    def value(self, name: str, **labels: str) -> float | None:
        """One metric; None: it isn't there."""
        return self.samples().get((name, frozenset(labels.items())))

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether the process is ready, and what it says of each flow."""
        status, text = self.get("/readyz")
        assert status in (200, 503), text
        answer = json.loads(text)
        assert answer["ready"] == (status == 200)
        return answer["ready"], answer["flows"]

    def wait(self, meaning: str, holds: Callable[[Observed], bool]) -> None:
        """Until `holds`."""
        wait_until(lambda: holds(self), meaning, lambda: self.get("/metrics")[1])
