"""What would keep an API's spend cap from being kept, so that nothing is sent there: told before anybody waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from backend.config import RunConfig
from backend.prices.lookup import prices_of


def spend_bound_warnings(
    settings: RunConfig, run_name: str, caps_tokens: Mapping[str, int | None], caps_usd: Mapping[str, float | None]
) -> list[str]:
    """A sentence for each thing that is missing: a price, or a cap on new tokens.

    `run_name` as it is typed in a command; `caps_tokens`: dataset → its cap on new tokens; `caps_usd`: API → its spend cap.
    An API without a spend cap needs neither.
    """
    words = []
    unbounded = [name for name, cap in caps_tokens.items() if cap is None]
    for name, cap_usd in caps_usd.items():
        if cap_usd is None:
            continue
        api = settings.api[name]
        if not prices_of(api, datetime.now(UTC)).known:
            words.append(
                f"What {api.model} costs at {name} is not known, so that its cap of ${cap_usd:g} could not be kept: "
                f"nothing will be sent there. Write input_usd_per_mtok and output_usd_per_mtok into [api.{name}], or lift the "
                f"cap: python -m backend set {run_name} api.{name}.spend_cap_usd=none"
            )
        elif unbounded:
            have, these = ("has", "it") if len(unbounded) == 1 else ("have", "them")
            words.append(
                f"{', '.join(unbounded)} {have} no cap on new tokens, so that one answer could cost anything and the cap of "
                f"${cap_usd:g} of {name} could not be kept: nothing of {these} will be sent there. "
                f"Set it: python -m backend set {run_name} {unbounded[0]}.max_new_tokens=8192"
            )
    return words
