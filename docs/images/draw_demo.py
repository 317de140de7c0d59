"""Draws docs/images/demo.svg, the output of a real run of the demo: `python docs/images/draw_demo.py`.

The demo runs as the command does; only the console on which it prints also records what it was given. Exits with the
demo's own code, and draws nothing unless that is 0.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Any

import rich.console
from rich.console import CONSOLE_SVG_FORMAT

from cli.commands.demo import demo

PICTURE = Path(__file__).with_name("demo.svg")
WIDTH = 88  # columns
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\n|<!--.*?-->\n", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""Without the fonts that a browser would fetch: the picture loads nothing."""


class RecordingConsole(rich.console.Console):
    """The console of the demo, which keeps what is printed. It is no terminal, so only the last state is printed."""

    last: RecordingConsole

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{**settings, "record": True, "width": WIDTH, "file": io.StringIO()})
        RecordingConsole.last = self


def main() -> int:
    """Run the demo, write the picture, and print what it shows."""
    rich.console.Console = RecordingConsole  # type: ignore[misc]
    code = demo.main(sys.argv[1:], prog_name="eos-replicate demo", standalone_mode=False)
    console = RecordingConsole.last
    print(console.export_text(clear=False))
    if code == 0:
        drawn = console.export_svg(title="make demo", code_format=FORMAT, unique_id="demo")
        PICTURE.write_text(re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
