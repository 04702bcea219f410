"""POST /v1/chat/completions, /generate and /v1/tokenize: bodies in, answers or streams out."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from backend.simulator import answers, tokens
from backend.simulator.engine import Generation
from backend.simulator.generation import BadRequestError, GenerationRequest, Json, parse_chat, parse_generate, parse_json
from backend.simulator.planning import plan_answer
from backend.simulator.serving import ClientGoneError, ServerError, end_abandoned, generate, meet_faults, stream_ids
from backend.simulator.settings import Profile
from backend.simulator.texts import split_reasoning

if TYPE_CHECKING:
    from backend.simulator.server import SimulatedServer

_JSON = "application/json"
_PROVIDER = "Simulated Inference"
_STREAM_FAULTS = ("cut-stream", "stall-stream", "stream-error")
_STALL_POLL_S = 0.05


def chat_error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """An error in the shape of the OpenAI endpoints."""
    kind = "RateLimitError" if status == 429 else "BadRequestError" if status < 500 else "InternalServerError"
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return web.Response(body=answers.dump(body), status=status, content_type=_JSON, headers=headers)


def generate_error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """An error in the shape of /generate."""
    return web.Response(body=answers.dump({"error": {"message": message}}), status=status, content_type=_JSON, headers=headers)


class GenerationEndpoints:
    """The handlers that generate."""

    def __init__(self, server: SimulatedServer) -> None:
        self._server = server

    async def chat(self, http: web.Request) -> web.StreamResponse:
        server = self._server
        try:
            request = parse_chat(parse_json(await http.read()), thinking_default=server.settings.thinking)
            if server.limits is not None:
                server.limits.admit(len(request.prompt_ids))
            if request.stream:
                return await self._stream_chat(http, request)
            generation = await generate(server, http, request)
            if server.limits is not None:
                server.bill.watch(generation)
                server.limits.settle(generation.sequence.generated)
            body = answers.dump(answers.chat_json(generation, server.settings, server.faults))
            headers = server.limits.headers() if server.limits is not None else None
            return web.Response(body=body, content_type=_JSON, headers=headers)
        except BadRequestError as error:
            return chat_error(400, str(error))
        except ServerError as error:
            return chat_error(error.status, error.message, error.headers)
        except ClientGoneError:
            return chat_error(499, "client disconnected")

    async def generate(self, http: web.Request) -> web.StreamResponse:
        server = self._server
        try:
            request = parse_generate(parse_json(await http.read()), thinking_default=server.settings.thinking)
            if request.stream:
                return await self._stream_generate(http, request)
            generation = await generate(server, http, request)
            body = answers.dump(answers.generate_json(generation, server.settings, server.faults))
            return web.Response(body=body, content_type=_JSON)
        except BadRequestError as error:
            return generate_error(400, str(error))
        except ServerError as error:
            return generate_error(error.status, error.message, error.headers)
        except ClientGoneError:
            return generate_error(499, "client disconnected")

    async def tokenize(self, http: web.Request) -> web.Response:
        try:
            body = parse_json(await http.read())
        except BadRequestError as error:
            return chat_error(400, str(error))
        prompt = body.get("prompt", "")
        texts = prompt if isinstance(prompt, list) else [prompt]
        ids = [tokens.encode(str(text)) for text in texts]
        reply: Json = {
            "tokens": ids if isinstance(prompt, list) else ids[0],
            "count": [len(one) for one in ids] if isinstance(prompt, list) else len(ids[0]),
            "max_model_len": self._server.settings.context_length,
        }
        return web.Response(body=answers.dump(reply), content_type=_JSON)

    async def detokenize(self, http: web.Request) -> web.Response:
        try:
            ids = parse_json(await http.read()).get("tokens")
        except BadRequestError as error:
            return chat_error(400, str(error))
        if not isinstance(ids, list) or not all(isinstance(one, int) and 0 <= one < tokens.VOCABULARY_SIZE for one in ids):
            return chat_error(400, "tokens must be a list of token ids")
        return web.Response(body=answers.dump({"text": tokens.decode(ids)}), content_type=_JSON)

    async def _open_stream(self, http: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        if self._server.limits is not None:
            response.headers.update(self._server.limits.headers())
        await response.prepare(http)
        return response

    async def _stream_chat(self, http: web.Request, request: GenerationRequest) -> web.StreamResponse:
        generation = await self._start_stream(http, request)
        if self._server.limits is not None:
            self._server.bill.watch(generation)
        response = await self._open_stream(http)
        try:
            await self._write_chat(http, response, generation)
        except ConnectionError:
            await end_abandoned(self._server, generation)
        return response

    async def _write_chat(self, http: web.Request, response: web.StreamResponse, generation: Generation) -> None:
        server, request = self._server, generation.request
        frame: Json = {
            "id": request.rid,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": answers.told_model(server.settings, server.faults),
        }
        if server.settings.profile is Profile.API:
            frame["provider"] = _PROVIDER
        trouble = next((name for name in _STREAM_FAULTS if server.faults.strikes(name)), None)
        nothing = server.faults.strikes_prompt("content-null-length", request.prompt)
        half = generation.sequence.target_tokens // 2
        splits = server.settings.reasoning_parser is not None or server.settings.profile is Profile.API
        splits = splits and request.separate_reasoning
        sent_reasoning = sent_content = ""
        await _send(response, frame | {"choices": [_delta({"role": "assistant", "content": ""})]})
        async for ids, complete in stream_ids(server, generation):
            if trouble is not None and len(ids) >= half:
                await self._break_stream(trouble, http, response, generation)
                return
            raw = tokens.decode(ids).rstrip("\ufffd") if not complete else tokens.decode(ids)
            reasoning, content = _split_live(raw) if splits else ("", raw)
            if nothing:
                continue
            if len(reasoning) > len(sent_reasoning):
                delta = {"reasoning_content": reasoning[len(sent_reasoning) :], "content": None}
                await _send(response, frame | {"choices": [_delta(delta)]})
                sent_reasoning = reasoning
            if len(content) > len(sent_content):
                await _send(response, frame | {"choices": [_delta({"content": content[len(sent_content) :]})]})
                sent_content = content
        finish = answers.finish_json(generation)
        if nothing:
            finish = {"type": "length"}
        text = answers.write_text(generation, server.settings)
        await _send(response, frame | {"choices": [_delta({}) | {"finish_reason": finish["type"]}]})
        if request.include_usage or server.settings.profile is Profile.API:
            usage = answers.usage_json(generation, server.settings, server.faults, text)
            await _send(response, frame | {"choices": [], "usage": usage})
        if server.limits is not None:
            server.limits.settle(generation.sequence.generated)
        await response.write(b"data: [DONE]\n\n")

    async def _break_stream(
        self, trouble: str, http: web.Request, response: web.StreamResponse, generation: Generation
    ) -> None:
        """A stream that ends in the middle; what it has generated until then is on the bill."""
        if trouble == "stall-stream":
            while http.transport is not None and not http.transport.is_closing():
                await asyncio.sleep(_STALL_POLL_S)
        if trouble == "stream-error":
            await _send(response, {"error": {"code": 502, "message": "The provider went away."}, "choices": []})
        self._server.engine.abort(generation.request.rid)
        if http.transport is not None and trouble == "cut-stream":
            http.transport.abort()

    async def _stream_generate(self, http: web.Request, request: GenerationRequest) -> web.StreamResponse:
        generation = await self._start_stream(http, request)
        response = await self._open_stream(http)
        try:
            await self._write_generate(response, generation)
        except ConnectionError:
            await end_abandoned(self._server, generation)
        return response

    async def _write_generate(self, response: web.StreamResponse, generation: Generation) -> None:
        server = self._server
        async for ids, complete in stream_ids(server, generation):
            body: Json = {"text": tokens.decode(ids), "output_ids": ids}
            if complete:
                text = answers.write_text(generation, server.settings)
                body["meta_info"] = answers.meta_info(generation, server.settings, server.faults, text)
            else:
                rid = generation.request.rid
                body["meta_info"] = {"id": rid, "finish_reason": None, "completion_tokens": len(ids)}
            await _send(response, body)
        await response.write(b"data: [DONE]\n\n")

    async def _start_stream(self, http: web.Request, request: GenerationRequest) -> Generation:
        server = self._server
        await meet_faults(server, http, request)
        return server.engine.submit(request, plan_answer(request, server.settings, server.faults))


def _delta(delta: Json) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}


def _split_live(raw: str) -> tuple[str, str]:
    """(reasoning, content) of an unfinished text; both only grow as it does."""
    reasoning, content = split_reasoning(raw)
    if reasoning is None:
        # the tag itself may still be incomplete
        return "", "" if "<think>".startswith(raw) else raw
    return reasoning, content


async def _send(response: web.StreamResponse, body: Any) -> None:
    await response.write(b"data: " + answers.dump(body) + b"\n\n")
