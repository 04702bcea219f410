"""The operator's dashboard as an ASGI app: the pages, and the JSON routes that live views poll.

`streamlit run app.py` serves it on 127.0.0.1. It reads run directories and writes intents; it starts and stops nothing itself.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pages.live.routes import live_routes

ROOT = Path(__file__).resolve().parent


@asynccontextmanager
async def lifespan(_: object) -> AsyncIterator[None]:
    """What the imports made stays for the process's life: the collector need not look at it with each rerun."""
    gc.freeze()
    yield


# Streamlit checks the host of its websocket alone; pages and JSON routes must not answer another name either (DNS rebinding).
HOSTS = [str(host) for host in st.get_option("server.allowedHosts") or ["*"]]

app = st.App(
    ROOT / "pages" / "frame.py",
    routes=live_routes(),
    lifespan=lifespan,
    middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)],
)
