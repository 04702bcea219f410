"""`dashboard`: serves the pages, buttons and all, until Ctrl-C. Runs go on without it."""

from __future__ import annotations

import argparse
from typing import Final

from backend.commands.serving import App, serve

DASHBOARD: Final = App(
    file="app.py",
    name="Headway's dashboard",
    outside="Whoever reaches {host} can press every button: there is no login here. Put a reverse proxy with one in front.",
)


def dashboard(options: argparse.Namespace) -> int:
    """Serves the dashboard and returns when it has ended: 0 after Ctrl-C, 1 where it could not start."""
    from backend.runs import runs_folder

    # named absolutely: the server works in another folder than who called it
    return serve(DASHBOARD, options.host, options.port, {"HEADWAY_RUNS": str(runs_folder())})
