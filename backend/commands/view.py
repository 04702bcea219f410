"""`view`: serves one run to those who only watch, until Ctrl-C. Its process holds nothing that could steer a run."""

from __future__ import annotations

import argparse
from typing import Final

from backend.commands.serving import App, serve
from backend.runs import find_run, runs_folder

VIEWER: Final = App(
    file="pages/viewer_app.py",
    name="Headway's viewer",
    outside="Whoever reaches {host} can look at this run and press nothing; there is no login here.",
)


def view(options: argparse.Namespace) -> int:
    """Serves the viewer of a run and returns when it has ended: 0 after Ctrl-C, 1 where it could not start.

    Raises RunDirError where there is no such run.
    """
    run = find_run(options.run, runs_folder())
    return serve(VIEWER, options.host, options.port, {"HEADWAY_VIEW": str(run.root)})
