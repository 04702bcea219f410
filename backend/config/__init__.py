"""A run's TOML: its shape, its validation and its saving. Every error names the file, the key, what was found and what to do.

Nothing here looks at the machine (paths, ports, GPUs): that is the pre-start check's work.
"""

from backend.config.checks import check
from backend.config.fault_lines import ConfigError
from backend.config.files import load, parse, save, validate
from backend.config.fingerprint import fingerprint
from backend.config.live import MAX_CONCURRENCY, parse_live_setting, read_deadline
from backend.config.shape import (
    ApiConfig,
    AtBudget,
    CostsConfig,
    DatasetConfig,
    DriverConfig,
    EngineConfig,
    EngineKind,
    FrozenConfig,
    GenerationConfig,
    GuardLimits,
    GuardsConfig,
    ModelConfig,
    PromptFile,
    RunConfig,
    SamplingConfig,
    TelemetryConfig,
    Turns,
)

__all__ = [
    "MAX_CONCURRENCY",
    "ApiConfig",
    "AtBudget",
    "ConfigError",
    "CostsConfig",
    "DatasetConfig",
    "DriverConfig",
    "EngineConfig",
    "EngineKind",
    "FrozenConfig",
    "GenerationConfig",
    "GuardLimits",
    "GuardsConfig",
    "ModelConfig",
    "PromptFile",
    "RunConfig",
    "SamplingConfig",
    "TelemetryConfig",
    "Turns",
    "check",
    "fingerprint",
    "load",
    "parse",
    "parse_live_setting",
    "read_deadline",
    "save",
    "validate",
]
