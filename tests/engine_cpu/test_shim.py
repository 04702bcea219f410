"""The stand-ins that let SGLang start without a GPU, imported as its processes import them."""

from __future__ import annotations

import subprocess
import sys

from backend.engine_cpu.place import engine_env

KERNEL = """
import sys
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction

@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
@triton.jit
def kernel(pointer, n, BLOCK: tl.constexpr = tl.constexpr(64)):
    return n

class Subclass(JITFunction):
    pass

assert kernel(None, 3) == 3
assert not isinstance(kernel, JITFunction)
assert [triton.cdiv(7, 2), triton.cdiv(8, 2)] == [4, 4]
assert [triton.next_power_of_2(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
assert "cpu" not in triton.backends.backends
assert list(triton.backends.backends) == []
assert {tl.float32: 1}[tl.float32] == 1
assert not hasattr(triton, "__no_such_dunder__")
"""

ABSENT_KERNEL = """
from sgl_kernel import rotary_embedding
try:
    rotary_embedding()
except NotImplementedError as error:
    print(error)
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=engine_env(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_gpu_kernels_can_be_defined_where_triton_is_absent() -> None:
    run(KERNEL)


def test_a_compiled_kernel_that_is_absent_says_so_when_called() -> None:
    assert "sgl_kernel.rotary_embedding is a compiled kernel" in run(ABSENT_KERNEL)


def test_the_stand_ins_keep_away_from_other_processes() -> None:
    env = engine_env() | {"SGLANG_USE_CPU_ENGINE": "0"}
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('triton') is not None)"
    assert subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False).returncode == 0
