"""Everything that shapes one simulated server, as values; command_line.py makes it from flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from backend.simulator.curve import DEFAULT_CURVE, SpeedCurve
from backend.simulator.lengths import LengthRule

VERSION = "0.5.23"
OLD_VERSION = "0.4.6"
SPECULATIVE_MAX_RUNNING = 48
CAP_WARNING = (
    "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting "
    "--max-running-requests."
)
_DEFAULT_MAX_RUNNING = 256


class Profile(StrEnum):
    """Which kind of server is played."""

    SGLANG = "sglang"
    """SGLang 0.5.23."""
    OLD = "old"
    """SGLang 0.4.6: /get_load instead of /v1/loads, no /ready, no realtime counters."""
    API = "api"
    """A paid OpenAI-shaped API: prices, rate limits, no token ids."""


@dataclass(frozen=True, slots=True)
class Prices:
    """USD per million tokens."""

    input_usd_per_mtok: float = 0.5
    output_usd_per_mtok: float = 2.0
    cached_usd_per_mtok: float | None = None
    """Of prompt tokens that were cached; None: like any other."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One server. Durations are simulated seconds: real ones are `speed` times shorter."""

    host: str = "127.0.0.1"
    port: int = 30000
    port_file: str | None = None
    model_path: str = "sim/model"
    served_model_name: str | None = None
    tp_size: int = 1
    max_running_requests: int | None = None
    max_queued_requests: int | None = None
    max_total_tokens: int = 1_200_000
    context_length: int = 131_072
    mem_fraction_static: float = 0.88
    random_seed: int = 0
    enable_metrics: bool = False
    access_log: bool = True
    decode_log_interval: int = 40
    publish_interval: int = 15
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    speculative_algorithm: str | None = None
    disable_radix_cache: bool = False
    enable_cache_report: bool = False
    api_key: str | None = None
    admin_api_key: str | None = None
    launch_command: str = ""
    thinking: bool = True
    """Whether requests that do not say so are answered with reasoning."""
    curve: SpeedCurve = field(default_factory=lambda: SpeedCurve.parse(DEFAULT_CURVE))
    speed: float = 1.0
    instant: bool = False
    """No service time: every request is answered at once."""
    prefill_tokens_per_s: float = 20_000.0
    load_s: float = 0.0
    health_delay_s: float = 1.0
    rules: tuple[LengthRule, ...] = (LengthRule(),)
    profile: Profile = Profile.SGLANG
    faults: tuple[tuple[str, str | None], ...] = ()
    children: bool = False
    gpus: tuple[int, ...] = (0,)
    gpu_state_file: str | None = None
    prices: Prices = Prices()
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    chunk_tokens: int = 1
    """A stream sends so many tokens at a time (profile api)."""

    @property
    def model_name(self) -> str:
        return self.served_model_name or self.model_path

    @property
    def max_running(self) -> int:
        """Requests in the batch at once, after SGLang's own rules."""
        if self.max_running_requests is not None:
            return self.max_running_requests
        return SPECULATIVE_MAX_RUNNING if self.speculative_algorithm else _DEFAULT_MAX_RUNNING

    @property
    def accept_length(self) -> float:
        """Tokens a decode step yields; above 1 with speculation."""
        return 2.6 if self.speculative_algorithm else 1.0

    @property
    def version(self) -> str:
        return OLD_VERSION if self.profile is Profile.OLD else VERSION
