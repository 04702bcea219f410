"""What Headway knows about SGLang's flags (0.5.x): which it refuses in `engine.args` and why, and which shape the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SPECULATIVE_CAP: Final = 48  # requests at once, when --speculative-algorithm comes without --max-running-requests

REFUSED: Final = {
    "--host": "Headway chooses it (127.0.0.1). Leave it out",
    "--port": "Headway chooses a free one. Leave it out, or write engine.port",
    "--api-key": "Headway makes a new key for each start and keeps it out of `ps`. Leave it out",
    "--admin-api-key": "with it, the server refuses to abort requests for Headway's own key. Leave it out",
    "--model-path": "the model is named once for all. Write model.path",
    "--model": "the model is named once for all. Write model.path",
    "--served-model-name": "requests need the same name. Write model.served_name",
    "--tp-size": "Headway counts GPUs by it. Write engine.tp",
    "--tp": "Headway counts GPUs by it. Write engine.tp",
    "--tensor-parallel-size": "Headway counts GPUs by it. Write engine.tp",
    "--base-gpu-id": "Headway gives each replica its GPUs. Write engine.gpus",
    "--gpu-id-step": "Headway gives each replica its GPUs. Write engine.gpus",
    "--node-rank": 'Headway starts servers on this machine only. Use engine.kind = "attached" for a server of several nodes',
    "--use-ray": 'Ray\'s processes lie outside the server, where Headway cannot stop them. Use engine.kind = "attached"',
    "--grpc-mode": "Headway speaks HTTP. Leave it out",
    "--smg-grpc-mode": "Headway speaks HTTP. Leave it out",
    "--ssl-keyfile": "the server listens on this machine only, without TLS. Leave it out",
    "--ssl-certfile": "the server listens on this machine only, without TLS. Leave it out",
    "--skip-tokenizer-init": "without a tokenizer the server takes no chat messages. Leave it out",
    "--is-embedding": "an embedding server generates no text. Leave it out",
}
_DATA_PARALLEL: Final = ("--dp-size", "--dp", "--data-parallel-size")

# An answer may differ when one of these does; all others change the speed, the memory or the logs.
SHAPING: Final = frozenset(
    {
        "--chat-template", "--completion-template", "--context-length", "--default-chat-template-kwargs", "--dtype",
        "--enable-deterministic-inference", "--enable-lora", "--enable-strict-thinking", "--hf-chat-template-name",
        "--json-model-override-args", "--kv-cache-dtype", "--load-format", "--lora-paths", "--preferred-sampling-params",
        "--quantization", "--random-seed", "--reasoning-parser", "--revision", "--sampling-defaults",
        "--speculative-accept-threshold-acc", "--speculative-accept-threshold-single", "--strip-thinking-cache",
        "--tokenizer-path", "--tool-call-parser",
    }
)  # fmt: skip


def split_flags(args: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Flags with their values, in order; `--flag=value` and `--flag value` are the same. Words before any flag are left out."""
    flags: list[tuple[str, list[str]]] = []
    for arg in args:
        if arg.startswith("--"):
            name, equals, value = arg.partition("=")
            flags.append((name, [value] if equals else []))
        elif flags:
            flags[-1][1].append(arg)
    return flags


def flag_faults(args: Sequence[str], *, requests_per_replica: int) -> list[str]:
    """What is wrong with `engine.args`, each with its reason and remedy."""
    faults = [_not_one_word(arg) for arg in args if arg.startswith("--") and " " in arg.partition("=")[0]]
    if args and not args[0].startswith("-"):
        faults.append(
            f'begins with "{args[0]}", must begin with a flag (--...). Each flag and each value is an element of its own'
        )
    flags = split_flags(args)
    values = {name: given[-1] if given else None for name, given in flags}
    faults += [f"{name} is refused: {REFUSED[name]}." for name in values if name in REFUSED]
    for name in _DATA_PARALLEL:
        if _more_than_one(values.get(name)) and "--enable-dp-attention" not in values:
            faults.append(f"{name} is refused: Headway balances replicas itself. Write engine.replicas.")
    if _more_than_one(values.get("--nnodes")):
        faults.append(f"--nnodes is refused: {REFUSED['--node-rank']}.")
    if _more_than_one(values.get("--tokenizer-worker-num")):
        faults.append(
            "--tokenizer-worker-num above 1 is refused: SGLang then takes no API key, by which Headway knows its own server. "
            "Leave it out."
        )
    if values.get("--disaggregation-mode") in ("prefill", "decode"):
        faults.append(
            "--disaggregation-mode is refused: such a server answers only with its partner. "
            'Use engine.kind = "attached" with the address of their router.'
        )
    if "--speculative-algorithm" in values and "--max-running-requests" not in values:
        faults += _speculative_fault(requests_per_replica)
    return faults


def shaping_flags(args: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The flags on which the generated texts depend, sorted by name."""
    return sorted((name, values) for name, values in split_flags(args) if name in SHAPING)


def _speculative_fault(requests_per_replica: int) -> list[str]:
    if requests_per_replica <= SPECULATIVE_CAP:
        return []
    return [
        f"--speculative-algorithm without --max-running-requests: SGLang then silently runs {SPECULATIVE_CAP} requests at "
        f"once, and generation.concurrency asks for {requests_per_replica} a replica. "
        f'Add "--max-running-requests", "{requests_per_replica}", or lower generation.concurrency.'
    ]


def _not_one_word(arg: str) -> str:
    name, _, rest = arg.partition(" ")
    return f'{name} and its value are one element, must be two: "{name}", "…"' if rest else f"{name} ends with a blank"


def _more_than_one(value: str | None) -> bool:
    return value is not None and value.isdigit() and int(value) > 1
