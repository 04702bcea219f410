"""Where draws come from: the standard normal distribution on arrays, and streams of random numbers, one for each purpose."""

from __future__ import annotations

import math
from hashlib import blake2b
from statistics import NormalDist

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_GRID = np.linspace(-9.0, 9.0, 3601)
_TABLE: Floats = np.array([0.5 * math.erfc(z / math.sqrt(2)) for z in _GRID.tolist()])
_NORMAL = NormalDist()


def normal_survival(z: Floats) -> Floats:
    """P(Z > z), to 1e-6."""
    return np.asarray(np.interp(z, _GRID, _TABLE))


def normal_quantile(chance: Floats) -> Floats:
    """The z below which so large a share lies, to 1e-4 where 0.0001 < chance < 0.9999."""
    return np.asarray(np.interp(1.0 - chance, _TABLE[::-1], _GRID[::-1]))


def spread_normals(draws: int, rng: Generator) -> Floats:
    """Standard normal points, one about the middle of each of `draws` slices of equal probability, in random order."""
    points = np.array([_NORMAL.inv_cdf((i + 0.5) / draws) for i in range(draws)])
    return rng.permutation(points)


def stream(seed: int, *names: str) -> Generator:
    """A generator of its own for each purpose: what one consumes does not change what another one draws."""
    key = blake2b("\0".join(names).encode(), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(key, "big")])
