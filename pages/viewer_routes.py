"""What the viewer's live parts poll: how the one run goes that this process shows, and nothing of any other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backend.report.live import LiveError, LiveRuns
from backend.report.public import PublicRun, public_run
from backend.run_dir import RunDir
from pages.live.routes import FILE, as_json, file, refused, routes_of

VARIABLE: Final = "HEADWAY_VIEW"
LIVE: Final = LiveRuns(lambda: Path(os.devnull))  # asked for the one run alone, never for one by its name
UNREADABLE: Final = "This run cannot be read at the moment. Who operates it finds the reason on the dashboard."
_NO_OTHER: Final = "There is no run of this name."


def viewer_routes() -> list[BaseRoute]:
    """`api/pulse` and the files that live parts run."""
    return routes_of({"api/pulse": pulse, FILE: file})


def viewed_run() -> RunDir | None:
    """The run that this process shows; None where it was started without one."""
    path = os.environ.get(VARIABLE)
    return RunDir(Path(path)) if path else None


def read_public(run: RunDir) -> PublicRun:
    """What may be shown of it, at most a second old. Raises LiveError, whose words are not for viewers: `UNREADABLE` is."""
    return public_run(LIVE.view(run))


def dataset_speeds(run: RunDir) -> dict[str, float | None]:
    """Dataset → finished tokens/s of the last minute. Raises LiveError."""
    return dict(LIVE.dataset_speeds(run))


def pulse(request: Request) -> Response:
    """State, progress and age of the run. Another run's name is answered like one that does not exist."""
    run = viewed_run()
    if run is None or request.query_params.get("run", run.name) != run.name:
        return refused(404, _NO_OTHER)
    try:
        public = read_public(run)
    except LiveError:
        return refused(404, UNREADABLE)
    return as_json(
        {
            "run": public.name,
            "at": public.at,
            "look": public.look,
            "supervisor": public.look.word,
            "life": None,
            "sentence": public.sentence,
            "trouble": public.trouble,
            "age": public.age,
            "share": public.progress,
            "replicas": [],
        }
    )
