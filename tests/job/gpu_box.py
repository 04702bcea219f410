"""The stand-in's GPUs as tests speak of them."""

from __future__ import annotations

from collections.abc import Callable

GIB = 1 << 30
Box = Callable[[str], None]  # what the GPUs say from now on: `0.power_w 612; 0.temp 71`
