"""Runs at the start of every Python process of the CPU engine: stands in for what only a CUDA box has.

Python imports a module of this name by itself when its folder is on PYTHONPATH, in the server's spawned children as
well. Nothing is imported here beyond the standard library; each help waits until the library in question is imported.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

_BOX_OPERATORS = ("nms", "qnms")


class TorchvisionOperators:
    """Meta-path finder that finds nothing: on the first import of torchvision it declares the operators it lacks.

    The torchvision of the package index is linked against CUDA and its compiled half does not load beside a CPU torch;
    its Python half then fails because it registers shapes for operators that nobody declared. Where the compiled half
    loads (a CPU or a matching CUDA build), nothing is declared: a second declaration would be an error.
    """

    def __init__(self) -> None:
        self._asked = False
        self._declarations: object | None = None  # they are withdrawn when this object goes

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "torchvision" and not self._asked:
            self._asked = True
            self._declare()
        return None

    def _declare(self) -> None:
        import torch

        found = importlib.util.find_spec("torchvision")
        for folder in (found.submodule_search_locations or []) if found else []:
            compiled = os.path.join(folder, "_C.so")
            if not os.path.exists(compiled):
                continue
            try:
                torch.ops.load_library(compiled)
            except OSError:
                continue
            return
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in _BOX_OPERATORS:
            library.define(f"{operator}(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")
        self._declarations = library


if os.environ.get("SGLANG_USE_CPU_ENGINE") == "1":
    sys.meta_path.insert(0, TorchvisionOperators())
    if importlib.util.find_spec("triton") is None:
        from triton_standin import StandInFinder

        sys.meta_path.append(StandInFinder())
