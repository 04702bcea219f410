"""What a probe of an API may cost at worst, in words, before anybody agrees to it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from backend.config import ConfigError, RunConfig, load
from backend.costs.prices import Usage, cost_usd
from backend.prices.lookup import prices_of
from backend.report.formatting import compact, plural
from backend.report.money import usd
from backend.report.status import read_status
from backend.run_dir import RunDir
from backend.runs import command_name


@dataclass(frozen=True, slots=True)
class ProbePrice:
    """The bound that prices and caps on new tokens give; None where they give none: then nothing would be sent."""

    worst_usd: Decimal | None
    words: str


def probe_price(run: RunDir, api: str, prompts: int, cap_usd: float) -> ProbePrice:
    """Of `prompts` requests to an API of run.toml, within a cap. Raises ConfigError where there is no such API, RunDirError."""
    settings = load(run.config)
    if api not in settings.api:
        known = ", ".join(settings.api) or "none: add [api.NAME] to its run.toml"
        raise ConfigError(f"There is no API {api!r} in {run.name}; it has {known}.")
    prices = prices_of(settings.api[api], datetime.now(UTC))
    datasets = read_status(run, time.time(), counted=False, settings=settings).datasets  # caps as they are now, not as written
    longest = max((d.max_new_tokens for d in datasets if d.max_new_tokens is not None), default=None)
    prompt_bytes = _prompt_bytes(settings)
    if not prices.known:
        words = f"What {settings.api[api].model} costs at {api} is not known: nothing is sent without a price. Write "
        words += f"input_usd_per_mtok and output_usd_per_mtok into [api.{api}] of {run.config} and start the supervisor again."
        return ProbePrice(None, words)
    if longest is None:
        words = "No dataset has a cap on new tokens: nothing is sent without one. Set it: python -m backend set "
        words += f"{command_name(run)} {settings.datasets[0].name}.max_new_tokens=8192"
        return ProbePrice(None, words)
    worst = cost_usd(Usage(requests=prompts, prompt=prompts * prompt_bytes, completion=prompts * longest), prices)
    sources = ", ".join(dict.fromkeys(price.source for price in prices.all))
    words = (
        f"{plural(prompts, 'prompt')} to {api} ({settings.api[api].model}): at most {usd(worst)} by the prices ({sources}), "
        f"with every answer as long as its cap of {compact(longest)} tokens. Never more than {usd(Decimal(str(cap_usd)))}: "
        "what would not fit is not sent. The answers are kept as samples."
    )
    return ProbePrice(worst, words)


def _prompt_bytes(settings: RunConfig) -> int:
    """Of the dataset with the longest prompts on average: a token is a byte at least, so that this many tokens are plenty."""
    files = settings.frozen.prompt_files if settings.frozen else {}
    means = [sum(f.bytes for f in own) / max(1, sum(f.records for f in own)) for own in files.values()]
    return round(max(means, default=0.0))
