"""The routes that live views poll, and the files that they run: JSON of `backend.report.live`, our modules, plotly.js.

Files lie under a folder named by a hash of their content and may be kept for ever. A run is found by comparing names; nothing
in an address becomes a path.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping
from datetime import tzinfo
from functools import cache
from pathlib import Path
from typing import Final

import orjson
import plotly
import streamlit as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from backend.report.ending import EndKind, end_words
from backend.report.live import Live, LiveError, LiveRuns
from backend.report.live_series import STRETCHES
from backend.runs import runs_folder
from pages.clock import zone_of
from pages.states import look_of_event, of_engine, of_run

LIVE: Final = LiveRuns(runs_folder)
FILES: Final = "live-files"
FILE: Final = f"{FILES}/{{digest}}/{{name}}"
_OURS: Final = Path(__file__).parent
_PLOTLY: Final = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_NO_STORE: Final = {"Cache-Control": "no-store"}
MAX_SINCE: Final = 1 << 40


def live_routes() -> list[BaseRoute]:
    """`api/live`, `api/pulse` and the files."""
    return routes_of({"api/live": live, "api/pulse": pulse, FILE: file})


def routes_of(endpoints: Mapping[str, Callable[[Request], Response]]) -> list[BaseRoute]:
    """Paths with what answers them; also below `server.baseUrlPath`, where Streamlit puts its own routes alone."""
    prefix = str(st.get_option("server.baseUrlPath") or "").strip("/")
    bases = dict.fromkeys(("", f"/{prefix}" if prefix else ""))
    return [Route(f"{base}/{path}", answer, methods=["GET"]) for base in bases for path, answer in endpoints.items()]


def files_folder() -> str:
    """Where the browser finds the modules, relative to the page: `live-files/<hash>/`."""
    return f"{FILES}/{_digest()}/"


# Plain functions: Starlette runs them on its threads, so a database that keeps one waiting holds up no one else.
def live(request: Request) -> Response:
    """All that Overview shows live: `run`, `since` (a former answer's `seq`), `window` (15m, 3h, all), `zone`."""
    stretch, since = request.query_params.get("window", "15m"), request.query_params.get("since", "0")
    if stretch not in STRETCHES:
        return refused(400, f"window is one of {', '.join(STRETCHES)}.")
    if not (since.isascii() and since.isdigit()) or len(since) > 13 or int(since) > MAX_SINCE:
        return refused(400, "since is a former answer's seq, or 0.")
    try:
        answer = LIVE.answer(request.query_params.get("run", ""), int(since), stretch)
    except LiveError as error:
        return refused(404, str(error))
    more = {
        "seq": answer.seq,
        "end": _end(answer, zone_of(request.query_params.get("zone"))),
        "naive": answer.naive,
        "figures": answer.figures,
        "gpus": answer.gpus,
        "charts": answer.charts,
        "target_tokens": answer.target_tokens,
        "events": [event | {"tone": look_of_event(event["kind"], event["severity"]).tone} for event in answer.events],
    }
    return as_json(_pulse(answer) | more)


def pulse(request: Request) -> Response:
    """What every page shows of its run: state, sentence, trouble."""
    try:
        return as_json(_pulse(LIVE.pulse(request.query_params.get("run", ""))))
    except LiveError as error:
        return refused(404, str(error))


def file(request: Request) -> Response:
    """One of the files that the pages run."""
    name = request.path_params["name"]
    if request.path_params["digest"] != _digest() or name not in _files():
        return refused(404, "There is no such file; load the page again.")
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    headers = {"Cache-Control": _FOR_EVER, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
    body = _files()[name].read_bytes()
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"], body = "gzip", _packed(name)
    return Response(body, media_type=kind, headers=headers)


def as_json(value: object) -> Response:
    """An answer that is never kept."""
    return Response(orjson.dumps(value), media_type="application/json", headers=_NO_STORE)


def refused(status: int, words: str) -> Response:
    """Likewise, with the reason."""
    return Response(orjson.dumps({"error": words}), status, media_type="application/json", headers=_NO_STORE)


def _end(live: Live, zone: tzinfo) -> tuple[str, str] | None:
    """When it is done, in the viewer's time; None where nothing can be said that the first sentence does not say."""
    if live.ending is None or live.ending.kind in (EndKind.UNTOLD, EndKind.FINISHED):
        return None
    return end_words(live.ending, live.view.at, zone)


def _pulse(live: Live) -> dict[str, object]:
    view, look = live.view, of_run(live.view)
    return {
        "run": view.name,
        "at": view.at,
        "look": look,
        "supervisor": view.supervisor.state,
        "life": view.supervisor.life,
        "sentence": live.sentence,
        "detail": live.detail,
        "trouble": live.trouble,
        "age": live.age,
        "share": live.share,
        "replicas": [
            {"name": r.name, "look": of_engine(r.state), "reason": r.reason, "since": r.since, "in_flight": r.in_flight}
            for r in view.replicas
        ],
    }


@cache
def _files() -> dict[str, Path]:
    ours = {path.name: path for path in sorted(_OURS.iterdir()) if path.suffix in (".js", ".css")}
    return {**ours, "plotly.min.js": _PLOTLY}


@cache
def _digest() -> str:
    content = hashlib.sha256(plotly.__version__.encode())
    for name, path in _files().items():
        content.update(name.encode() + (path.read_bytes() if path != _PLOTLY else b""))
    return content.hexdigest()[:16]


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(_files()[name].read_bytes(), 6)
