"""Run as a program: serves the viewer as `view` does, and at its end writes down which modules of ours the process held."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path

from streamlit.web import cli


def main(told: str, arguments: list[str]) -> None:
    """`told`: the file to write, a module a line; `arguments` are those of `streamlit`."""
    atexit.register(lambda: Path(told).write_text("\n".join(sorted(sys.modules))))
    cli.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
