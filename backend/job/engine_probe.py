"""Asks one SGLang server how it does, each second, gently: `/v1/loads`, and every few seconds `/metrics`.

Covered: time-outs, servers that lack an endpoint (learnt once, learnt anew after a restart), rates of counters. Left to
others: whether a server is ready or stalled (`server.py`), keeping the samples (`telemetry_store.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp
import orjson

from backend.job.counter_rates import EngineRates, PacedRates
from backend.job.engine_loads import EngineLoad, ServerInfo, read_get_load, read_loads, read_server_info
from backend.job.engine_metrics import EngineMetrics, read_metrics
from backend.telemetry import EngineSample

TIMEOUT_S: Final = 2.0
METRICS_INTERVAL_S: Final = 5.0
# Prometheus's classic text. Another Accept header changes the spelling of names, and its parser is stricter.
METRICS_ACCEPT: Final = "text/plain;version=0.0.4"
_MISSING: Final = frozenset({404, 405, 501})
_REFUSED: Final = frozenset({401, 403})

LOADS: Final = "/v1/loads"
GET_LOAD: Final = "/get_load"
METRICS: Final = "/metrics"
SERVER_INFO: Final = ("/server_info", "/get_server_info")


class EngineSilentError(Exception):
    """The server did not answer as it should; the message is a sentence."""


class _EndpointMissingError(Exception):
    """This server has no such endpoint."""


class EngineProbe:
    """Probes the server at `base_url` for replica `key`. One probe at a time."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        *,
        key: str,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        metrics_interval_s: float = METRICS_INTERVAL_S,
    ) -> None:
        self.failure: str | None = None  # why the last probe got no load or no metrics, a sentence
        self.version: str | None = None  # as the server tells it
        self._session = session
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._timeout_s = timeout_s
        self._interval_s = metrics_interval_s
        self._rates = EngineRates()
        self._life = ""
        self.begin_life("")

    def begin_life(self, life: str) -> None:
        """Another process serves from now on (`life` identifies it): what was learnt of the former one is forgotten."""
        self._life = life
        self.version = None
        self._missing: set[str] = set()
        self._info: ServerInfo | None = None
        self._elder_load: EngineLoad | None = None
        self._paced = PacedRates()
        self._next_metrics_at = float("-inf")

    async def probe(self, now: float) -> EngineSample:
        """The engine at `now` (epoch seconds). Takes at most `timeout_s`; never raises for what a server does.

        A server that does not answer gives `answered` 0 and nothing else; why is in `failure`.
        """
        due = now >= self._next_metrics_at
        load, metrics = await asyncio.gather(self._load(now, due), self._metrics(due), return_exceptions=True)
        for answer in (load, metrics):
            if isinstance(answer, BaseException) and not isinstance(answer, EngineSilentError):
                raise answer
        if isinstance(load, BaseException):
            self.failure = str(load)
            # The next that answers here may be another version.
            self._missing.clear()
            return EngineSample(key=self._key, at=now, answered=0.0)
        if isinstance(metrics, BaseException):
            self.failure = str(metrics)
        else:
            self.failure = None
            if due:
                self._next_metrics_at = now + self._interval_s
                self._paced = self._rates.pace(load, metrics, now, self._life)
        return self._sample(load, now)

    async def read_server_info(self) -> ServerInfo:
        """Version and limits. Asks the scheduler, which answers never if it hangs. Raises EngineSilentError."""
        for path in SERVER_INFO:
            try:
                info = read_server_info(await self._get_json(path))
            except _EndpointMissingError:
                continue
            except ValueError as error:
                raise EngineSilentError(f"{self._base_url}{path}: {error}.") from error
            self._info = info
            self.version = info.version or self.version
            return info
        raise EngineSilentError(f"{self._base_url} has neither {' nor '.join(SERVER_INFO)}: is it an SGLang server?")

    async def _load(self, now: float, due: bool) -> EngineLoad:
        try:
            if LOADS not in self._missing:
                load = read_loads(await self._get_json(LOADS), now)
                self.version = load.version or self.version
                return load
        except _EndpointMissingError:
            self._missing.add(LOADS)
        except ValueError as error:
            raise EngineSilentError(f"{self._base_url}: {error}.") from error
        return await self._load_of_elder(due)

    async def _load_of_elder(self, due: bool) -> EngineLoad:
        """Older servers ask their scheduler for it, so they are asked only with the metrics; the answer holds in between."""
        if self._elder_load is not None and not due:
            return self._elder_load
        if self._info is None or GET_LOAD in self._missing:  # somebody must answer, or it would count as alive unasked
            await self.read_server_info()
        info = self._info or ServerInfo()
        load = EngineLoad()
        try:
            if GET_LOAD not in self._missing:
                load = read_get_load(await self._get_json(GET_LOAD))
        except _EndpointMissingError:
            self._missing.add(GET_LOAD)
        except ValueError as error:
            raise EngineSilentError(f"{self._base_url}: {error}.") from error
        self._elder_load = EngineLoad(
            running=load.running,
            queued=load.queued,
            max_running_requests=info.max_running_requests,
            kv_capacity_tokens=info.kv_capacity_tokens,
        )
        return self._elder_load

    async def _metrics(self, due: bool) -> EngineMetrics:
        if not due or METRICS in self._missing:
            return EngineMetrics()
        try:
            page = await self._get(METRICS, accept=METRICS_ACCEPT)
        except _EndpointMissingError:
            self._missing.add(METRICS)
            return EngineMetrics()
        return read_metrics(page.decode("utf-8", "replace"))

    async def _get_json(self, path: str) -> Any:
        return orjson.loads(await self._get(path, accept="application/json"))

    async def _get(self, path: str, accept: str) -> bytes:
        url = self._base_url + path
        headers = {**self._headers, "Accept": accept}
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        try:
            async with self._session.get(url, headers=headers, timeout=timeout, allow_redirects=False) as response:
                status, body = response.status, await response.read()
        except TimeoutError as error:
            raise EngineSilentError(f"{url} did not answer within {self._timeout_s:g} s.") from error
        except aiohttp.ClientError as error:
            raise EngineSilentError(f"{url} cannot be reached: {error or type(error).__name__}.") from error
        if status in _MISSING:
            raise _EndpointMissingError
        if status in _REFUSED:
            raise EngineSilentError(f"{url} answered HTTP {status}: it wants another API key.")
        if status != 200:
            raise EngineSilentError(f"{url} answered HTTP {status}.")
        return body

    def _sample(self, load: EngineLoad, now: float) -> EngineSample:
        # Figures that come every few seconds hold in between, and no longer when they stop coming.
        paced = self._paced if now - self._paced.at <= 3 * self._interval_s else PacedRates()
        metrics = paced.metrics
        return EngineSample(
            key=self._key,
            at=now,
            answered=1.0,
            running=_first(load.running, metrics.running),
            queued=_first(load.queued, metrics.queued),
            prefill_tokens_per_s=paced.prefill_tokens_per_s,
            decode_tokens_per_s=paced.decode_tokens_per_s,
            gen_throughput=metrics.gen_throughput,
            token_usage=_first(load.token_usage, metrics.token_usage),
            kv_capacity_tokens=_first(load.kv_capacity_tokens, metrics.kv_capacity_tokens),
            max_running_requests=load.max_running_requests,
            cache_hit_rate=paced.cache_hit_rate,
            spec_accept_length=metrics.spec_accept_length,
            retracted_total=metrics.retracted_total,
            retracted_per_s=paced.retracted_per_s,
            generated_tokens=_first(load.generated_tokens, metrics.decode_tokens_total),
            prefilled_tokens=_first(load.prefilled_tokens, metrics.prefill_compute_tokens_total),
            heartbeat_age_s=load.heartbeat_age_s,
            first_token_s=paced.first_token_s,
            queue_time_s=paced.queue_time_s,
        )


def _first(one: float | None, other: float | None) -> float | None:
    return other if one is None else one
