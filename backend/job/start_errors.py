"""Why a server ended: its exit code and its log in a sentence with a remedy. Pure: text in, text out."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class _Pattern:
    regex: re.Pattern[str]
    sentence: str  # may use {1}: the first group
    remedy: str


def _pattern(regex: str, sentence: str, remedy: str) -> _Pattern:
    return _Pattern(re.compile(regex, re.IGNORECASE | re.MULTILINE), sentence, remedy)


# In this order: what names the cause comes before what merely follows from it.
_KNOWN: Final = (
    _pattern(
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "SGLang found too little GPU memory for the KV cache after loading the weights",
        "Add --mem-fraction-static 0.9 (or more) to engine.args, or use more GPUs (engine.tp), a shorter --context-length "
        "or a quantised model",
    ),
    _pattern(
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory)[^\n]*",
        "the GPU ran out of memory while the model was loaded",
        "See with nvidia-smi whether another process holds memory there; else use more GPUs (engine.tp), lower "
        "--mem-fraction-static, --cuda-graph-max-bs-decode or --chunked-prefill-size in engine.args",
    ),
    _pattern(
        r"(?:GatedRepoError|Access to model [^\n]* is restricted|gated repo|401 Client Error|403 Client Error)",
        "Hugging Face refuses this model to you: it is gated, or the token is missing or wrong",
        'Accept its licence on huggingface.co, export HF_TOKEN where Headway is started and set engine.env_from = ["HF_TOKEN"]',
    ),
    _pattern(
        r"(?:RepositoryNotFoundError|is not a local folder and is not a valid model identifier|Repo id must be in the form"
        r"|Repository Not Found for url)",
        "there is no such model: {model} is neither a folder here nor found on Hugging Face",
        "Correct model.path: a folder with config.json, or an id such as Qwen/Qwen3-8B",
    ),
    _pattern(
        r"(?:LocalEntryNotFoundError|couldn't connect to '?https://huggingface\.co"
        r"|Max retries exceeded with url[^\n]*huggingface|Failed to resolve 'huggingface\.co')",
        "Hugging Face cannot be reached from here, and the model is not in the local cache",
        "Download the model to a folder and name that folder in model.path, or set the proxy in engine.env",
    ),
    _pattern(
        r"error: unrecognized arguments: ([^\n]+)",
        "this SGLang does not know: {1}",
        "Correct engine.args (`python -m sglang.launch_server --help`, run with engine.python, lists what it knows)",
    ),
    _pattern(
        r"error: (argument [^\n]+|the following arguments are required[^\n]+|ambiguous option[^\n]+)",
        "SGLang refuses its arguments: {1}",
        "Correct engine.args",
    ),
    _pattern(
        r"address already in use",
        "port {port} was taken by another process while the model was loaded",
        "Set engine.port to a free port, or to 0 to let Headway choose one, and start again",
    ),
    _pattern(
        r"No module named '?(sglang)\b",
        "the interpreter has no sglang",
        "Set engine.python to the Python of the environment in which SGLang is installed",
    ),
    _pattern(
        r"No module named '?([\w.]+)",
        "a Python package is missing: {1}",
        "Install it into the environment of engine.python",
    ),
    _pattern(
        r"(?:CUDA driver version is insufficient|The NVIDIA driver on your system is too old)",
        "the GPU driver is too old for this build of torch",
        "Update the NVIDIA driver, or install a torch built for an older CUDA into the environment of engine.python",
    ),
    _pattern(
        r"no kernel image is available for execution on the device",
        "torch or a kernel package was not built for this GPU's architecture",
        "Install builds for this GPU (the pre-start check names its compute capability) into the environment of engine.python",
    ),
    _pattern(
        r"(?:No CUDA GPUs are available|Found no NVIDIA driver|no accelerator|CUDA-capable device)",
        "SGLang sees no GPU",
        "Check nvidia-smi, CUDA_VISIBLE_DEVICES and engine.gpus",
    ),
    _pattern(
        r"invalid device ordinal",
        "a GPU was asked for that does not exist",
        "Correct engine.gpus and engine.tp; nvidia-smi lists what is there",
    ),
    _pattern(
        r"(?:error while loading shared libraries: ([^\s:]+)|(\S+\.so[.\d]*): cannot open shared object file)",
        "a shared library is missing: {1}",
        "Install it, or add its folder to LD_LIBRARY_PATH in engine.env",
    ),
    _pattern(
        r"No space left on device",
        "a disk is full",
        "Make room (model cache, /tmp and /dev/shm count as well) and start again",
    ),
    _pattern(
        r"Too many open files",
        "the limit of open files was reached",
        "Raise it before starting Headway: ulimit -n 65536",
    ),
    _pattern(
        r"((?:ncclInternalError|ncclSystemError|ncclUnhandledCudaError|NCCL error|NCCL WARN|DistBackendError)[^\n]*)",
        "the GPUs could not talk to each other (NCCL): {1}",
        'Set engine.env = {{ NCCL_DEBUG = "INFO" }} to see more; in containers /dev/shm must be large (--shm-size 32g)',
    ),
    _pattern(
        r"Capture cuda graph failed: ([^\n]*)",
        "capturing CUDA graphs failed: {1}",
        "Lower --mem-fraction-static or --cuda-graph-max-bs-decode in engine.args",
    ),
    _pattern(
        r"Initialization failed\. warmup error: ([^\n]*)",
        "the first request after loading failed: {1}",
        "The server's log says more",
    ),
)

# What ends a server that was at work; looked for at the very end of its log only.
_KNOWN_AT_WORK: Final = (
    _pattern(
        r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory)",
        "the GPU ran out of memory",
        "Lower --mem-fraction-static by 0.03 or --chunked-prefill-size in engine.args",
    ),
    _pattern(
        r"(pool memory leak detected|token_to_kv_pool_allocator memory leak detected)",
        "SGLang's own check found its KV cache accounts wrong while idle, and ended it",
        'Set engine.env = {{ SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE = "false" }}: it then only warns',
    ),
    _pattern(
        r"watchdog timeout",
        "SGLang's watchdog ended it: one forward pass took too long",
        "If it was compiling kernels, raise --watchdog-timeout in engine.args; else its log shows where it hung",
    ),
    _pattern(
        r"((?:ncclInternalError|ncclSystemError|ncclUnhandledCudaError|NCCL error|DistBackendError)[^\n]*)",
        "the GPUs could no longer talk to each other (NCCL): {1}",
        "A GPU may be lost: see nvidia-smi and `dmesg | grep -i xid`",
    ),
    _pattern(
        r"CUDA error: ([^\n]*)",
        "a CUDA error: {1}",
        "If it returns, see `dmesg | grep -i xid` (hardware), else try another --attention-backend",
    ),
    _pattern(r"No space left on device", "a disk is full", "Make room (/tmp and /dev/shm count as well)"),
)
_END_CHARACTERS: Final = 20_000

_LOG_PREFIX: Final = re.compile(r"^\[\d{4}-\d\d-\d\d [^\]]*\]\s*")
_EXCEPTION_LINE: Final = re.compile(r"^(?:[\w.]*(?:Error|Exception|Interrupt|Failed|Exit))\b(?:: .*)?$")
_SHOWN_CHARACTERS: Final = 300


def exit_words(code: int | None) -> str:
    """What an exit code of SGLang means."""
    if code is None:
        return "its exit code is not known, because an earlier supervisor had started it"
    if code in (-9, 137):
        return (
            f"it was killed (exit code {code}). SGLang ends like this after an error in its scheduler or by its own watchdog; "
            "the kernel's out-of-memory killer as well"
        )
    if code == 0:
        return "it ended by itself (exit code 0): somebody asked it to drain, or it crashed as the first process of a container"
    if code < 0:
        return f"it was ended by {_signal_name(-code)} (exit code {code})"
    if code > 128 and code - 128 in {number.value for number in signal.Signals}:
        return f"it was ended by {_signal_name(code - 128)} (exit code {code})"
    if code == 2:
        return "it refused its arguments (exit code 2)"
    if code == 3:
        return "it could not listen on its port (exit code 3)"
    return f"it ended with exit code {code}"


def explain_failed_start(log: str, exit_code: int | None, *, model: str, port: int) -> str:
    """Why a server ended before it was ready. `log`: the end of what this life printed."""
    cause = known_cause(log, model=model, port=port)
    if cause is not None:
        return f"The server did not start: {cause}"
    line = last_words(log)
    if exit_code in (-9, 137) and (line is None or _EXCEPTION_LINE.match(line) is None):
        return (
            f"The server was killed while it loaded (exit code {exit_code}), without an error of its own: most likely by the "
            "kernel's out-of-memory killer (`dmesg | grep -i oom` tells). Free host memory or use a machine with more."
        )
    said = "It printed nothing." if line is None else f"The last it said: {line}"
    return f"The server did not start: {exit_words(exit_code)}. {said}"


def explain_exit(log: str, exit_code: int | None, *, model: str, port: int) -> str:
    """Why a server that was ready ended."""
    cause = known_cause(log[-_END_CHARACTERS:], model=model, port=port, known=_KNOWN_AT_WORK)
    line = last_words(log[-_END_CHARACTERS:])
    said = cause if cause is not None else None if line is None else f"The last it said: {line}"
    return f"The server ended: {exit_words(exit_code)}." + ("" if said is None else f" {said[0].upper()}{said[1:]}")


def known_cause(log: str, *, model: str, port: int, known: Sequence[_Pattern] = _KNOWN) -> str | None:
    """The cause and its remedy, where the log holds a message we know."""
    for pattern in known:
        match = pattern.regex.search(log)
        if match is not None:
            group = next((part for part in match.groups() if part), "").strip()[:_SHOWN_CHARACTERS]
            sentence = pattern.sentence.replace("{1}", group).replace("{model}", model).replace("{port}", str(port))
            remedy = pattern.remedy.replace("{{", "{").replace("}}", "}")
            return f"{sentence}. {remedy}."
    return None


def last_words(log: str) -> str | None:
    """The last exception line of the log, else its last line; None where it is empty."""
    lines = [_LOG_PREFIX.sub("", line).strip() for line in log.split("\n")]
    lines = [line for line in lines if line]
    exceptions = [
        line for line in lines if _EXCEPTION_LINE.match(line) and not line.startswith(("SystemExit", "KeyboardInterrupt"))
    ]
    chosen = exceptions[-1] if exceptions else lines[-1] if lines else None
    return None if chosen is None else chosen[:_SHOWN_CHARACTERS]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
