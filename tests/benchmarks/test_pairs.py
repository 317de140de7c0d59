"""What is done to two checkouts before they are measured."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pairs import compile_bytecode


def test_a_checkout_s_packages_are_compiled(tmp_path: Path) -> None:
    for name in ("broker/net/server.py", "broker/net/__init__.py", "broker/__init__.py", "docs/example.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    compile_bytecode(tmp_path)
    kept = {path.name.partition(".")[0] for path in tmp_path.rglob("__pycache__/*.pyc")}
    assert kept == {"server", "__init__"}
    assert not (tmp_path / "docs" / "__pycache__").exists()
