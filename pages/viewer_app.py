"""The viewer as an ASGI app: one run, named by $HEADWAY_VIEW, for those who only watch. `view RUN` of the CLI serves it.

Its process never imports `backend.control`: nothing in it could write a wish, whatever somebody sends to it.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pages.viewer_routes import viewer_routes


@asynccontextmanager
async def lifespan(_: object) -> AsyncIterator[None]:
    """What the imports made stays for the process's life: the collector need not look at it with each rerun."""
    gc.freeze()
    yield


# Streamlit checks the host of its websocket alone; pages and JSON routes must not answer another name either (DNS rebinding).
HOSTS = [str(host) for host in st.get_option("server.allowedHosts") or ["*"]]

app = st.App(
    Path(__file__).with_name("viewer.py"),
    routes=viewer_routes(),
    lifespan=lifespan,
    middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)],
)
