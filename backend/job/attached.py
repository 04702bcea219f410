"""A server that somebody else runs: watched, used, and otherwise left alone. It is never started, stopped, paused or flushed,
and only requests of this run are aborted there."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence

import aiohttp

from backend.config import RunConfig
from backend.job.replica import (
    AdoptOutcome,
    AdoptResult,
    Endpoint,
    ReplicaObservation,
    ReplicaPhase,
    StartRefused,
    StopReport,
)
from backend.job.server_probe import ServerProbe, abort_requests


class AttachedServer:
    """One replica behind a URL of engine.urls."""

    def __init__(self, config: RunConfig, environ: Mapping[str, str], index: int) -> None:
        self.name = str(index)
        self._url = _base_url(config.engine.urls[index])
        self._key_variable = config.engine.api_key_env
        self._api_key = environ.get(self._key_variable) if self._key_variable is not None else None
        self._probe = ServerProbe(self._url, self._api_key)
        self._phase = ReplicaPhase.LOADING
        self._since = time.time()
        self._reason: str | None = f"{self._url} has not answered yet."
        self._launch = secrets.token_hex(8)

    def adopt(self) -> AdoptResult:
        """There is nothing to prove: the server is not ours."""
        return AdoptResult(AdoptOutcome.NOTHING)

    def launch(self, now: float) -> None:
        """Nothing is started. Raises StartRefused when the variable that holds the server's key is not set."""
        if self._key_variable is not None and not self._api_key:
            raise StartRefused(
                f"engine.api_key_env names {self._key_variable}, which is not set in the environment of "
                f"`python -m backend start`. Export it there."
            )

    async def observe(self, session: aiohttp.ClientSession, now: float) -> ReplicaObservation:
        """Ready once it answered 200; from then on absent only when nothing accepts connections there (a busy server may
        answer 503, or late)."""
        await self._probe.look(session, now, urgent=self._phase is not ReplicaPhase.READY)
        self._judge(self._probe, now)
        return ReplicaObservation(
            replica=self.name,
            phase=self._phase,
            since=self._since,
            endpoint=self._endpoint() if self._phase is ReplicaPhase.READY else None,
            reason=self._reason,
            version=self._probe.version,
            answers=self._probe.ready,
        )

    def _judge(self, probe: ServerProbe, now: float) -> None:
        if probe.reachable is False:
            if self._phase is not ReplicaPhase.ABSENT:
                self._enter(
                    ReplicaPhase.ABSENT, now, f"nothing answers at {self._url}. Start that server, or correct engine.urls."
                )
        elif probe.ready and self._phase is not ReplicaPhase.READY:
            self._launch = secrets.token_hex(8)  # it may be another life of that server: nobody tells
            self._enter(ReplicaPhase.READY, now, None)
        elif probe.reachable and self._phase is ReplicaPhase.ABSENT:
            self._enter(ReplicaPhase.LOADING, now, f"{self._url} accepts connections and is not ready.")

    def _enter(self, phase: ReplicaPhase, now: float, reason: str | None) -> None:
        self._phase, self._since, self._reason = phase, now, reason

    def _endpoint(self) -> Endpoint:
        return Endpoint(self.name, self._url, self._api_key, self._launch, owned=False)

    async def stop(self, *, deadline_s: float) -> StopReport:
        """Nothing is stopped: the server goes on."""
        self._probe.forget()
        return StopReport(clean=True, message=f"replica {self.name}: {self._url} is run by somebody else and goes on")

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests. Raises AbortFailed, also when asked to abort everything."""
        await abort_requests(session, self._endpoint(), rids)


def _base_url(url: str) -> str:
    """Without a trailing slash and without /v1, which OpenAI clients write."""
    return url.rstrip("/").removesuffix("/v1")
