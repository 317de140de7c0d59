"""What an endpoint answers of the process itself: a fault of the flow file, which it goes on without."""

from __future__ import annotations

import json
from urllib.request import ProxyHandler, build_opener

import pytest
import structlog

from replicator.clock import RealClock
from replicator.config import MetricsSection
from replicator.observe.endpoint import Endpoint


@pytest.mark.parametrize("fault", ["", "flows.yaml: line 3: <no such key>"])
def test_a_fault_of_the_flow_file_is_told_on_each_page_and_leaves_it_ready(fault: str) -> None:
    opener = build_opener(ProxyHandler({}))
    endpoint = Endpoint(MetricsSection(listen="127.0.0.1:0"), "1.2.3", RealClock())
    with endpoint.serving(list, lambda: fault, structlog.get_logger()) as port:

        def asked(path: str) -> str:
            with opener.open(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:  # raises for any but 200
                return str(answer.read().decode())

        assert ("go on with the settings that they have: flows.yaml: line 3: &lt;no" in asked("/")) is bool(fault)
        assert json.loads(asked("/flows"))["config_fault"] == fault
        assert json.loads(asked("/readyz")).get("config_fault", "") == fault
        assert f"\neos_config_fault {int(bool(fault))}\n" in asked("/metrics")
