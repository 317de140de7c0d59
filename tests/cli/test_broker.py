"""`eos-replicate broker`: settings under Kafka's names are checked before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.commands.broker import broker


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("num.partitions", "is not NAME=VALUE"),
        ("num.partitions=0", "Invalid value 0 for configuration num.partitions"),
        ("nonsense=1", "nonsense is no setting of this broker"),
    ],
)
def test_a_setting_that_makes_no_sense_starts_nothing(tmp_path: Path, setting: str, said: str) -> None:
    data = tmp_path / "data"
    result = CliRunner().invoke(broker, ["--data-dir", str(data), "--config", setting])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert not data.exists()
