"""What the viewer's live parts poll: how the one run goes that this process shows, and nothing of any other."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from backend.report.live import LiveError
from backend.report.watching import Watching
from backend.run_dir import RunDir
from pages.live.routes import FILE, as_json, file, refused, routes_of

VARIABLE: Final = "HEADWAY_VIEW"
UNREADABLE: Final = "This run cannot be read at the moment. Who operates it finds the reason on the dashboard."
_NO_OTHER: Final = "There is no run of this name."


def viewer_routes() -> list[BaseRoute]:
    """`api/pulse` and the files that live parts run."""
    return routes_of({"api/pulse": pulse, FILE: file})


def watched() -> Watching | None:
    """The run that this process shows; None where it was started without one."""
    path = os.environ.get(VARIABLE)
    return _watching(path) if path else None


def pulse(request: Request) -> Response:
    """State, progress and age of the run. Another run's name is answered like one that does not exist."""
    run = watched()
    if run is None or request.query_params.get("run", run.run.name) != run.run.name:
        return refused(404, _NO_OTHER)
    try:
        public = run.public()
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


@cache
def _watching(path: str) -> Watching:
    return Watching(RunDir(Path(path)))
