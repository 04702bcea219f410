"""Endpoints that only tell: readiness, health, model, server, loads and metrics."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aiohttp import web

from backend.simulator.answers import dump
from backend.simulator.generation import Json
from backend.simulator.metrics import render
from backend.simulator.settings import Profile

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer

_HEALTH_TIMEOUT_S = 20.0
_LOADS_SECTIONS = ("core", "memory", "spec", "lora", "disagg", "queues", "all")


def _reply(body: Json) -> web.Response:
    return web.Response(body=dump(body), content_type="application/json")


class InfoEndpoints:
    """The handlers that read."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def ready(self, http: web.Request) -> web.Response:
        up = self._server.up and not self._server.exiting and not self._server.server_faults.spoils_health()
        return web.Response(status=200 if up else 503)

    async def health(self, http: web.Request) -> web.Response:
        """A probe that waits for the scheduler, as SGLang's does; a failed one leaves the server unhealthy."""
        server = self._server
        if server.exiting or server.server_faults.spoils_health():
            return web.Response(status=503)
        speed = server.settings.speed
        if server.engine.halted and "hang" not in server.faults:
            asked = time.strftime("%H:%M:%S")
            await asyncio.sleep(_HEALTH_TIMEOUT_S / speed)
            if server.engine.halted:
                server.up = False
                beat = time.strftime("%H:%M:%S", time.localtime(server.engine.load().published_at))
                server.log.write(
                    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
                    f"tic start time: {asked}. last_heartbeat time: {beat}"
                )
                return web.Response(status=503)
        else:
            await asyncio.sleep(server.settings.health_delay_s / speed)
        server.up = True
        return web.Response(status=200)

    async def model_info(self, http: web.Request) -> web.Response:
        settings = self._server.settings
        return _reply(
            {
                "model_path": settings.model_path,
                "served_model_name": settings.model_name,
                "tokenizer_path": settings.model_path,
                "is_generation": True,
                "preferred_sampling_params": None,
                "weight_version": "default",
                "load_format": "auto",
                "reasoning_parser": settings.reasoning_parser,
                "tool_call_parser": settings.tool_call_parser,
                "disaggregation_mode": "null",
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "model_type": "simulated",
                "architectures": ["SimulatedForCausalLM"],
            }
        )

    async def models(self, http: web.Request) -> web.Response:
        settings = self._server.settings
        model = {
            "id": settings.model_name,
            "object": "model",
            "created": int(time.time()),
            "owned_by": "sglang",
            "root": settings.model_name,
            "parent": None,
            "max_model_len": settings.context_length,
        }
        return _reply({"object": "list", "data": [model]})

    async def generation(self, http: web.Request) -> web.Response:
        """What one generation cost, by the id of its answer (profile api); 404 until it has ended."""
        rid = http.query.get("id", "")
        charge = self._server.bill.charges.get(rid)
        if charge is None:
            return web.json_response({"error": {"message": "Generation not found.", "code": 404}}, status=404)
        data = {
            "id": rid,
            "model": self._server.settings.model_name,
            "total_cost": float(charge.usd),
            "native_tokens_prompt": charge.prompt_tokens,
            "native_tokens_completion": charge.completion_tokens,
            "native_tokens_cached": charge.cached_tokens,
        }
        return _reply({"data": data})

    async def bill(self, http: web.Request) -> web.Response:
        """The simulator's own bill over everything (profile api)."""
        charges, limits = self._server.bill.charges.values(), self._server.limits
        return _reply(
            {
                "usd": float(self._server.bill.usd),
                "generations": len(charges),
                "prompt_tokens": sum(charge.prompt_tokens for charge in charges),
                "cached_tokens": sum(charge.cached_tokens for charge in charges),
                "completion_tokens": sum(charge.completion_tokens for charge in charges),
                "refused": 0 if limits is None else limits.refused,
            }
        )

    async def server_info(self, http: web.Request) -> web.Response:
        """Hangs with the scheduler, as SGLang's does: there is no time-out."""
        server = self._server
        while server.engine.halted:
            await asyncio.sleep(0.05)
        settings, gauges = server.settings, server.engine.read_gauges()
        arguments = {
            "model_path": settings.model_path,
            "tokenizer_path": settings.model_path,
            "context_length": settings.context_length,
            "mem_fraction_static": settings.mem_fraction_static,
            "max_running_requests": server.engine.max_running,
            "max_queued_requests": settings.max_queued_requests,
            "max_total_tokens": settings.max_total_tokens,
            "tp_size": settings.tp_size,
            "dp_size": 1,
            "pp_size": 1,
            "random_seed": settings.random_seed,
            "host": settings.host,
            "port": server.port,
            "served_model_name": settings.model_name,
            "reasoning_parser": settings.reasoning_parser,
            "tool_call_parser": settings.tool_call_parser,
            "enable_metrics": settings.enable_metrics,
            "enable_cache_report": settings.enable_cache_report,
            "disable_radix_cache": settings.disable_radix_cache,
            "decode_log_interval": settings.decode_log_interval,
            "speculative_algorithm": settings.speculative_algorithm,
        }
        state = arguments | {
            "last_gen_throughput": gauges.gen_throughput,
            "effective_max_running_requests_per_dp": server.engine.max_running,
            "memory_usage": {"weight": 60.0, "kvcache": 50.0, "token_capacity": settings.max_total_tokens, "graph": 2.0},
            "avg_spec_accept_length": settings.accept_length if settings.speculative_algorithm else None,
        }
        return _reply(
            arguments
            | {
                "launch_command": settings.launch_command,
                "status": "ready",
                "max_total_num_tokens": settings.max_total_tokens,
                "max_req_input_len": settings.context_length - 6,
                "startup_time": {"load_weight": settings.load_s, "scheduler_e2e": settings.load_s},
                "internal_states": [state],
                "version": settings.version,
            }
        )

    async def loads(self, http: web.Request) -> web.Response:
        """The shared-memory snapshot: its own timestamp is the scheduler's heartbeat, the outer one is always fresh."""
        server = self._server
        wanted = set(http.query.get("include", "all").split(","))
        for section in wanted - set(_LOADS_SECTIONS):
            return web.Response(status=400, text=f"unknown section {section!r}")
        load, gauges, settings = server.engine.load(), server.engine.reporter.gauges, server.settings
        pool = settings.max_total_tokens
        core: Json = {
            "timestamp": load.published_at,
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.queued,
            "num_waiting_uncached_tokens": load.queued_tokens,
            "num_used_tokens": load.used_tokens,
            "num_total_tokens": load.used_tokens + load.queued_tokens,
            "num_active_tokens": load.used_tokens,
            "num_prealloc_ready_tokens": 0,
            "max_total_num_tokens": pool,
            "max_running_requests": server.engine.max_running,
            "token_usage": round(load.used_tokens / pool, 4),
            "gen_throughput": round(gauges.gen_throughput, 2) if settings.enable_metrics else 0.0,
            "cache_hit_rate": gauges.cache_hit_rate,
            "utilization": 0.0,
            "total_prefill_uncached_tokens": load.prefill_tokens,
            "total_prefill_busy_us": load.prefill_busy_us,
            "decode_moments": list(load.moments) if load.moments is not None else None,
        }
        everything = "all" in wanted
        if everything or "memory" in wanted:
            core["memory"] = {"weight_gb": 60.0, "kv_cache_gb": 50.0, "graph_gb": 2.0, "token_capacity": pool}
        if settings.speculative_algorithm and (everything or "spec" in wanted):
            core["speculative"] = {"accept_length": settings.accept_length}
        if everything or "disagg" in wanted:
            core["disaggregation"] = {"mode": "null"}
        if everything or "queues" in wanted:
            waiting = load.queued - load.retracted
            core["queues"] = {"waiting": waiting, "grammar": 0, "paused": 0, "retracted": load.retracted, "prealloc_ready": 0}
        return _reply(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": settings.version,
                "accelerator": None,
                "num_accelerators": settings.tp_size,
                "loads": [core],
            }
        )

    async def old_load(self, http: web.Request) -> web.Response:
        """/get_load of older servers: no heartbeat."""
        load = self._server.engine.load()
        row = {
            "dp_rank": 0,
            "num_reqs": load.running + load.queued,
            "num_waiting_reqs": load.queued,
            "num_tokens": load.used_tokens,
        }
        return web.Response(body=dump([row]), content_type="application/json")

    async def metrics(self, http: web.Request) -> web.Response:
        accept = http.headers.get("Accept", "")
        openmetrics = "application/openmetrics-text" in accept
        underscores = "escaping=underscores" in accept or (openmetrics and "allow-utf-8" not in accept)
        text = render(self._server, underscores=underscores, openmetrics=openmetrics)
        kind = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
        return web.Response(body=text.encode(), headers={"Content-Type": f"{kind}; charset=utf-8"})

    async def settings_of_simulator(self, http: web.Request) -> web.Response:
        """What this simulator was started with, for a person who looks."""
        shown = asdict(self._server.settings)
        for name in ("api_key", "admin_api_key", "rules", "launch_command"):
            del shown[name]
        shown["profile"] = Profile(shown["profile"]).value
        return _reply(shown)
