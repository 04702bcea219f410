"""What each command of the CLI does: asks `control` or `report`, and prints the answer. `__main__.py` reads the arguments."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from backend.commands import adopt, dashboard, demo, export, looking, routing, share, steering, sweep, view

COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "create": steering.create,
    "start": steering.start,
    "stop": steering.stop,
    "pause": steering.pause,
    "resume": steering.resume,
    "kill": steering.kill,
    "redo": steering.redo,
    "set": steering.change,
    "engine": steering.engine,
    "route": routing.route,
    "probe": routing.probe,
    "sweep": sweep.sweep,
    "status": looking.status,
    "wait": looking.wait,
    "list": looking.list_all,
    "logs": looking.logs,
    "export": export.export_samples,
    "adopt": adopt.adopt_outputs,
    "share": share.share,
    "dashboard": dashboard.dashboard,
    "view": view.view,
    "demo": demo.demo,
}
