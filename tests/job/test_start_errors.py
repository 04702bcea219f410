"""Why a server ended, in words."""

from __future__ import annotations

import pytest

from backend.job.start_errors import exit_words, explain_exit, explain_failed_start, last_words

LOGS = {
    "no room for the cache": (
        "[2026-01-01 00:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.5\n",
        -9,
        ["too little GPU memory for the KV cache", "--mem-fraction-static 0.9"],
    ),
    "out of memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79 GiB\n",
        -9,
        ["the GPU ran out of memory while the model was loaded", "engine.tp"],
    ),
    "no such model": (
        "OSError: /data/nope is not a local folder and is not a valid model identifier listed on 'https://huggingface.co'\n",
        1,
        ["there is no such model: the/model", "Correct model.path"],
    ),
    "gated model": (
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.\nCannot access gated repo for url https://hugg...\n",
        1,
        ["it is gated", 'engine.env_from = ["HF_TOKEN"]'],
    ),
    "no network": (
        "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file on the Hub\n",
        1,
        ["Hugging Face cannot be reached from here"],
    ),
    "unknown argument": (
        "usage: launch_server.py [-h]\nlaunch_server.py: error: unrecognized arguments: --foo 3\n",
        2,
        ["does not know: --foo 3", "Correct engine.args"],
    ),
    "wrong choice": (
        "launch_server.py: error: argument --dtype: invalid choice: 'x' (choose from 'auto')\n",
        2,
        ["SGLang refuses its arguments: argument --dtype: invalid choice: 'x'"],
    ),
    "port in use": (
        "ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use\n",
        3,
        ["port 30000 was taken by another process while the model was loaded", "engine.port"],
    ),
    "no sglang": ("/usr/bin/python3: No module named sglang\n", 1, ["the interpreter has no sglang", "engine.python"]),
    "no sglang, imported": ("ModuleNotFoundError: No module named 'sglang'\n", 1, ["the interpreter has no sglang"]),
    "missing package": ("ModuleNotFoundError: No module named 'flashinfer'\n", 1, ["package is missing: flashinfer"]),
    "old driver": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).\n",
        1,
        ["driver is too old", "Update the NVIDIA driver"],
    ),
    "wrong architecture": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n",
        -9,
        ["not built for this GPU's architecture"],
    ),
    "no GPU": ("RuntimeError: No CUDA GPUs are available\n", 1, ["SGLang sees no GPU", "CUDA_VISIBLE_DEVICES"]),
    "missing library": (
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory\n",
        1,
        ["a shared library is missing: libcudart.so.12", "LD_LIBRARY_PATH"],
    ),
    "NCCL": (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, unhandled system error\n",
        -9,
        ["could not talk to each other (NCCL)", 'engine.env = { NCCL_DEBUG = "INFO" }'],
    ),
    "disk full": ("OSError: [Errno 28] No space left on device\n", 1, ["a disk is full"]),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_real_error_of_a_failed_start_is_named_with_a_remedy(name: str) -> None:
    log, code, words = LOGS[name]
    noise = "[2026-01-01 00:00:00] Loading safetensors checkpoint shards:  50% Completed\n"
    told = explain_failed_start(noise + log + noise, code, model="the/model", port=30000)
    assert told.startswith("The server did not start: ")
    for part in words:
        assert part in told
    assert told.endswith(".")


def test_an_unknown_error_is_told_by_the_last_line_of_its_traceback() -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "x.py", line 1, in <module>\n'
        "ValueError: head_dim 96 is not supported\n"
        "[2026-01-01 00:00:00] kill_process_tree called: parent_pid=1\n"
    )
    told = explain_failed_start(log, 1, model="m", port=1)
    assert told.endswith("it ended with exit code 1. The last it said: ValueError: head_dim 96 is not supported")


def test_a_kill_without_words_during_the_load_points_at_host_memory() -> None:
    told = explain_failed_start("[2026-01-01 00:00:00] Loading weights\n", -9, model="m", port=1)
    assert "out-of-memory killer" in told
    assert "dmesg" in told


def test_a_silent_start_says_so() -> None:
    assert explain_failed_start("", 1, model="m", port=1).endswith("It printed nothing.")


def test_the_end_of_a_ready_server_names_code_and_cause() -> None:
    told = explain_exit("RuntimeError: the end!\n", -9, model="m", port=1)
    assert "exit code -9" in told
    assert told.endswith("The last it said: RuntimeError: the end!")
    told = explain_exit("ValueError: token_to_kv_pool_allocator memory leak detected!\n", -9, model="m", port=1)
    assert 'SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE = "false"' in told
    told = explain_exit("torch.OutOfMemoryError: CUDA out of memory\n", -9, model="m", port=1)
    assert "The GPU ran out of memory. Lower --mem-fraction-static" in told


def test_the_beginning_of_a_log_does_not_explain_the_end() -> None:
    log = "OSError: [Errno 28] No space left on device\n" + "Decode batch\n" * 3000 + "RuntimeError: boom\n"
    assert "disk" not in explain_exit(log, -9, model="m", port=1)
    assert explain_exit("", 0, model="m", port=1).startswith("The server ended: it ended by itself (exit code 0)")


def test_the_last_words_are_the_exception_without_the_time() -> None:
    assert last_words("[2026-01-01 00:00:00 TP0] hello\n\n") == "hello"
    assert last_words("a.b.CustomError: x\nSystemExit: 1\nbye\n") == "a.b.CustomError: x"
    assert last_words("\n \n") is None


def test_signals_have_names() -> None:
    assert exit_words(-11) == "it was ended by SIGSEGV (exit code -11)"
    assert exit_words(143) == "it was ended by SIGTERM (exit code 143)"
    assert exit_words(1) == "it ended with exit code 1"
