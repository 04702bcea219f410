"""The sections of a run.toml and their fields. What must hold between fields is told by `checks.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

FIRST_DEADLINE: Final = datetime(2000, 1, 1, tzinfo=UTC)  # between the two every zone has a name for the day
LAST_DEADLINE: Final = datetime(3000, 1, 1, tzinfo=UTC)

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Probability = Annotated[float, Field(ge=0, le=1)]


class EngineKind(StrEnum):
    """What makes the tokens."""

    LOCAL = "local"  # SGLang started by Headway on this machine
    CONTAINER = "container"  # SGLang in a container started by Headway
    ATTACHED = "attached"  # servers that somebody else runs
    SIMULATED = "simulated"  # Headway's simulator: no GPU


class AtBudget(StrEnum):
    """What happens to requests in flight when a token budget is reached."""

    DRAIN = "drain"  # they finish: dropping them would bias the data towards short answers
    CANCEL = "cancel"  # they are dropped


class Turns(StrEnum):
    """Which assistant turns of a conversation are made."""

    LAST = "last"
    ALL = "all"


class MaxTokensField(StrEnum):
    """How an API calls the cap on new tokens."""

    MAX_TOKENS = "max_tokens"
    MAX_COMPLETION_TOKENS = "max_completion_tokens"  # reasoning models of OpenAI take no other


class _Section(BaseModel):
    # strict: "64" is not 64, and true is not 1; a configuration that says something else than it means is refused
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ModelConfig(_Section):
    """Which model answers."""

    path: str  # a folder, or a Hugging Face id
    served_name: str | None = None  # the name in requests; default: what the server calls it


class EngineConfig(_Section):
    """How the engine is started and watched. Times in seconds."""

    kind: EngineKind = Field(strict=False)  # by its text
    python: str | None = None  # local: the interpreter that has sglang
    command: list[str] | None = None  # local: instead of `python -m sglang.launch_server`
    image: str | None = None  # container: image to run
    docker: str = "docker"  # container: the executable
    docker_args: list[str] = []  # container: passed to `docker run`
    gpus: list[int | str] | None = None  # indices or UUIDs; None: all that are visible
    replicas: int = Field(default=1, ge=1, le=64)
    tp: int = Field(default=1, ge=1, le=64)
    args: list[str] = []  # passed through in SGLang's own spelling
    env: dict[str, str] = {}
    env_from: list[str] = []  # names of variables whose values are taken from the environment, never written down
    urls: list[str] = []  # attached: base URLs
    api_key_env: str | None = None  # attached: the variable that holds the key
    port: int = Field(default=0, ge=0, le=65535)  # of the first replica; 0: a free one
    ready_timeout_s: float = Field(default=7200, gt=0)  # without any movement (log, disk, GPU memory)
    stall_after_s: float = Field(default=300, gt=0)  # requests waiting and no token
    stop_deadline_s: float = Field(default=60, gt=0)  # between SIGTERM and SIGKILL
    max_restarts: int = Field(default=8, ge=0)  # within restart_window_s, then the engine is failed
    restart_window_s: float = Field(default=3600, gt=0)
    restart_backoff_s: float = Field(default=2, gt=0)  # doubles up to restart_backoff_max_s
    restart_backoff_max_s: float = Field(default=300, gt=0)


class SamplingConfig(_Section):
    """What is asked of the model; a dataset may override it key by key. None: the server's own default."""

    max_new_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = None
    seed: int | None = None
    chat_template_kwargs: dict[str, Any] = {}
    extra_body: dict[str, Any] = {}


class GenerationConfig(SamplingConfig):
    """Sampling for the whole run, and how many requests are kept in flight."""

    concurrency: int = Field(default=64, ge=1, le=20_000)  # over all running datasets together


class DriverConfig(_Section):
    """How requests are retried, drained and their answers sealed."""

    max_retries: int = Field(default=20, ge=0)  # of one request, for 429, 5xx and disconnects
    retry_backoff_s: float = Field(default=1, gt=0)
    retry_backoff_max_s: float = Field(default=60, gt=0)
    drain_limit_s: float = Field(default=600, ge=0)  # of SIGTERM to the supervisor: then requests in flight are aborted
    shard_rows: int = Field(default=20_000, ge=1)
    shard_seconds: float = Field(default=900, gt=0)
    disk_floor_gb: float = Field(default=2, ge=0)  # admission stops below


class GuardLimits(_Section):
    """What a dataset may override of the run's guards, key by key."""

    enabled: bool | None = None
    max_bad_share: Probability | None = None  # of empty, degenerate, thinking-only and repeated answers; 1: no limit
    max_truncated_share: Probability | None = None  # of answers that the cap ended
    max_rejected_share: Probability | None = None  # of prompts that the server refused
    min_mean_tokens: float | None = Field(default=None, gt=0)
    max_mean_tokens: float | None = Field(default=None, gt=0)


class GuardsConfig(GuardLimits):
    """When a dataset is held until somebody has looked at it. None: no limit."""

    enabled: bool = True
    max_bad_share: Probability = 0.2
    max_rejected_share: Probability = 0.5


class DatasetConfig(_Section):
    """One prompt dataset. Datasets run in the order in which they stand."""

    name: Name
    path: str | list[str]  # file or glob of JSONL or Parquet, relative to the TOML's folder
    id_field: str | None = None
    prompt_field: str | None = None  # default: messages, conversations, prompt, question, text, the first that is there
    system_prompt: str | None = None
    token_budget: int | None = Field(default=None, ge=1)  # completion tokens
    max_samples: int | None = Field(default=None, ge=1)
    at_budget: AtBudget = Field(default=AtBudget.DRAIN, strict=False)
    turns: Turns = Field(default=Turns.LAST, strict=False)
    generation: SamplingConfig = SamplingConfig()  # overrides, key by key
    guards: GuardLimits = GuardLimits()  # likewise

    @property
    def paths(self) -> list[str]:
        """`path` as a list."""
        return [self.path] if isinstance(self.path, str) else self.path


class ForecastConfig(_Section):
    """What is done so that the end can be told, and when to ask for a faster way."""

    pilot_samples: int = Field(default=16, ge=0, le=1000)  # of each waiting dataset, made first; 0: none
    deadline: AwareDatetime | None = Field(default=None, ge=FIRST_DEADLINE, le=LAST_DEADLINE)
    ask_after_h: float = Field(default=4, gt=0)  # a run longer than this is asked whether there is a faster way


class CostsConfig(_Section):
    """What staying costs."""

    gpu_hour_usd: float | None = Field(default=None, ge=0)
    kwh_usd: float | None = Field(default=None, ge=0)
    amortisation_usd_per_hour: float | None = Field(default=None, ge=0)
    gpus: int | None = Field(default=None, ge=1)  # that are paid for; None: engine.gpus, else those that are measured


class ApiConfig(_Section):
    """An OpenAI-compatible endpoint that could make the rest."""

    base_url: str
    model: str
    api_key_env: str | None = None
    api_key_file: str | None = None
    input_usd_per_mtok: float | None = Field(default=None, ge=0)
    cached_input_usd_per_mtok: float | None = Field(default=None, ge=0)
    output_usd_per_mtok: float | None = Field(default=None, ge=0)
    reasoning_usd_per_mtok: float | None = Field(default=None, ge=0)
    request_usd: float | None = Field(default=None, ge=0)
    stream_tokens_per_s: float | None = Field(default=None, gt=0)  # of one answer, assumed until a probe has measured it
    batch_discount: Probability | None = None
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    spend_cap_usd: float | None = Field(default=None, ge=0)
    stall_after_s: float = Field(default=120, gt=0)  # a stream that says nothing for so long is given up
    max_tokens_field: MaxTokensField = Field(default=MaxTokensField.MAX_TOKENS, strict=False)
    accept_models: list[str] = []  # further names under which the model may answer
    extra_body: dict[str, Any] = {}  # the provider's own: preferences, quantisation, service tier


class TelemetryConfig(_Section):
    """What is measured and offered."""

    prometheus_port: int | None = Field(default=None, ge=0, le=65535)  # on 127.0.0.1; 0: a free one; None: not offered
    gpu: bool = True


class RunConfig(_Section):
    """A whole run.toml."""

    name: Name
    model: ModelConfig
    engine: EngineConfig
    generation: GenerationConfig = GenerationConfig()
    driver: DriverConfig = DriverConfig()
    guards: GuardsConfig = GuardsConfig()
    datasets: list[DatasetConfig] = Field(min_length=1)
    forecast: ForecastConfig = ForecastConfig()
    costs: CostsConfig = CostsConfig()
    api: dict[Name, ApiConfig] = {}
    telemetry: TelemetryConfig = TelemetryConfig()
    frozen: FrozenConfig | None = None  # written by `create`, never by hand

    def dataset(self, name: str) -> DatasetConfig:
        """The dataset of that name. Raises KeyError."""
        return next(d for d in self.datasets if d.name == name)

    def sampling_for(self, dataset: DatasetConfig) -> SamplingConfig:
        """The run's sampling settings with the dataset's overrides on top, those in tables key by key."""
        merged: dict[str, Any] = {}
        for key in SamplingConfig.model_fields:
            run, own = getattr(self.generation, key), getattr(dataset.generation, key)
            merged[key] = {**run, **own} if isinstance(run, dict) else run if own is None else own
        return SamplingConfig.model_validate(merged)

    def guards_for(self, dataset: DatasetConfig) -> GuardsConfig:
        """The run's guards with the dataset's overrides on top."""
        own = dataset.guards.model_dump(exclude_none=True)
        return self.guards.model_copy(update=own)


class FrozenConfig(_Section):
    """What `create` froze: which files the prompts came from, and a fingerprint over everything that shapes the data."""

    fingerprint: str
    created_at: str
    prompt_files: dict[str, list[PromptFile]]  # dataset name → its files in reading order


class PromptFile(_Section):
    """A prompt file as it was when the run was created."""

    path: str  # absolute, so that the run's folder may lie anywhere
    bytes: int
    sha256: str
    records: int  # lines that are not blank, or Parquet rows; bad ones included


RunConfig.model_rebuild()
