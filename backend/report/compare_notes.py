"""PURE: what a comparison rests on, what no price shows, and the plan for a deadline, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backend.costs.choice import Plan
from backend.probes import Probe
from backend.report.compare import CompareView
from backend.report.compare_options import ASSUMED, MEASURED, Option
from backend.report.end_words import length_words, range_words
from backend.report.ending import names_words
from backend.report.formatting import number, plural
from backend.report.money import usd, usd_range

UNLIKELY: Final = 0.05  # lengths as different as these: how often, were they the same
# What no price shows. A line each: what it is about, and why it matters.
DIFFERENCES: Final = (
    (
        "Token ids",
        "An API returns text. Without the ids, the text may be cut into other tokens than the model made; training a draft "
        "model wants the target's own. Where an API does return ids, they are kept.",
    ),
    (
        "Is it the same model?",
        "Providers quantise, patch templates and change versions under one name, so answers may differ from your server's. A "
        "probe compares lengths, not quality.",
    ),
    (
        "Where answers end",
        "Caps, stop rules, hidden system prompts and moderation are the provider's. Reasoning may be left out or summarised.",
    ),
    (
        "Where the data goes",
        "Prompts and answers leave the box. Who keeps them, for how long and for what, stands in the provider's terms: check "
        "them before the first request.",
    ),
    ("Sampling", "Seeds, top_k and min_p are often ignored, and what extra_body means is the provider's own."),
    ("The box, once left", "A box that is paid for by the month costs the same when idle: leaving it saves nothing then."),
)


def plan_sentence(plan: Plan, deadline_s: float) -> str:
    """Which datasets go where so that the deadline holds, and what it costs."""
    until = length_words(deadline_s)
    if not plan.goes and not plan.holds and plan.seconds is not None:
        who = f"No way holds {until} 9 times of 10. The soonest: all of it stays here, done in {range_words(plan.seconds)}"
    elif not plan.goes:
        who = f"Nothing needs to go: all of it is done here within {until}, 9 times of 10"
    else:
        stays = f", {names_words(plan.stays)} {'stays' if len(plan.stays) == 1 else 'stay'}" if plan.stays else ""
        who = f"{names_words(plan.goes) if plan.stays else 'All that waits'} to {plan.api}{stays}"
        if plan.seconds is None:
            return f"{who}. When that ends is not known, as the box's part is not."
        if plan.holds:
            who += f": all done in {range_words(plan.seconds)}, and 9 times of 10 within {until}"
        else:
            who = f"No way holds {until} 9 times of 10. The soonest: {who}, done in {range_words(plan.seconds)}"
    return f"{who}. {_plan_money(plan)}"


def assumption_lines(view: CompareView) -> list[tuple[str, str]]:
    """What the figures rest on, a line each: what, and how it is known."""
    found = view.comparison
    if found is None:
        return []
    lines = [("The box's price", view.box_words), ("Length of the prompts", view.prompts_words)]
    if view.observed_at is None:
        lines.append(("Length of the answers", "unknown before the run begins: ranges are as wide as experience is"))
    if found.why_no_local is not None:
        lines.append(("The box's time", found.why_no_local))
    assumed = next((option for option in view.options if option.speed_source == ASSUMED), None)
    if assumed is not None:
        limits, speed = assumed.api.limits, assumed.api.speed
        words = f"{speed.tokens_per_s:g} tokens/s in each answer, {plural(limits.streams, 'answer')} at once"
        lines.append(("APIs that nobody measured", f"{words}: assumed, yours to change above. A probe measures it"))
    lines += [_measured_line(option) for option in view.options if option.probe is not None]
    lines.append(
        ("Limits by the minute", "tokens a minute are taken to count prompts and completions; unknown limits do not bind")
    )
    lines.append(("Cached input", "none, except where a probe found some"))
    if found.finishing is not None and found.finishing.seconds is not None:
        words = (
            f"finishes here in {range_words(found.finishing.seconds)} ({usd_range(found.finishing.usd)}), whatever is chosen"
        )
        lines.append(("What is in flight", words))
    batch = [f"{o.api.name} {usd(way.batch_usd)}" for o, way in zip(view.options, found.ways, strict=True) if way.batch_usd]
    if batch:
        lines.append(("As a batch, within a day", f"{', '.join(batch)}. Headway's switch sends single requests"))
    if view.sent:
        routes = ", ".join(f"{name} to {route.replace('both:', 'here and ')}" for name, route in view.sent)
        lines.append(("Sent already", f"{routes}. Compared as if it came back now"))
    if view.resumed:
        lines.append(("Paused", f"{names_words(view.resumed)}: counted as if resumed now"))
    if view.left_out:
        lines.append(("Left out", f"{names_words(view.left_out)}: nothing more is made of {_it(view.left_out)}"))
    return lines


def _measured_line(option: Option) -> tuple[str, str]:
    probe, speed = option.probe, option.api.speed
    if probe is None or option.speed_source != MEASURED:
        return (option.api.name, "its probe got no answer to measure")
    words = [f"{speed.tokens_per_s:.0f} tokens/s in each answer, first token after {speed.first_token_s:.1f} s"]
    words.append(f"{probe.answered} of {plural(probe.asked, 'answer')}, {probe.rate_limited} times asked to wait")
    if probe.cost_usd is not None and probe.cost_by_prices_usd is not None:
        words.append(f"took {usd(probe.cost_usd)}, by the prices {usd(probe.cost_by_prices_usd)}")
    if probe.mean_tokens is not None and probe.local_mean_tokens is not None:
        words.append(
            f"answers of {number(probe.mean_tokens)} tokens, here {number(probe.local_mean_tokens)}{_by_chance(probe)}"
        )
    if probe.cached_share:
        words.append(f"{probe.cached_share:.0%} of the prompts from its cache".replace("%", " %"))
    return (f"{option.api.name}, {MEASURED}", "; ".join(words))


def _by_chance(probe: Probe) -> str:
    if probe.lengths_p_value is None:
        return ""
    return ", more apart than chance explains" if probe.lengths_p_value < UNLIKELY else ", no more apart than by chance"


def _plan_money(plan: Plan) -> str:
    if plan.usd is None:
        return "What it costs is not known, as a price is not."
    parts = [f"{usd(plan.usd_api.p50)} for {plan.api}"] if plan.goes and plan.usd_api is not None else []
    if plan.usd_box is not None and plan.usd_box.p90 > 0:
        parts.append(f"{usd(plan.usd_box.p50)} for the box until its part is done")
    if not parts:
        return "The box has no price here, so that this costs nothing more."
    unpriced = "" if plan.usd_box is not None else "; the box has no price here"
    return f"Likely {usd(plan.usd)}: {' and '.join(parts)}{unpriced}." if len(parts) > 1 else f"Likely {parts[0]}{unpriced}."


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"
