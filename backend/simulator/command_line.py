"""Flags to Settings: SGLang's own spelling for what SGLang has, plus the simulator's flags; `--config` reads them from YAML."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from backend.simulator.curve import API_CURVE, DEFAULT_CURVE, SpeedCurve
from backend.simulator.faults import KINDS, UnknownFaultError, parse_fault
from backend.simulator.flat_yaml import parse_flat_yaml
from backend.simulator.lengths import LengthRule, load_rules
from backend.simulator.settings import Prices, Profile, Settings
from backend.simulator.sglang_flags import SWITCHES, WITH_VALUE

_IGNORED = "ignored"


def make_parser() -> argparse.ArgumentParser:
    """All flags; those of SGLang without a meaning here are accepted and ignored."""
    parser = argparse.ArgumentParser(
        prog="python -m backend.simulator",
        description="An SGLang-shaped server without GPUs. Takes the flags of sglang.launch_server and some of its own.",
        allow_abbrev=False,
    )
    known = parser.add_argument_group("SGLang's flags that have a meaning here")
    known.add_argument("--config", metavar="YAML", help="flags from a file, spelt without dashes in front")
    known.add_argument("--model-path", "--model", default="sim/model")
    known.add_argument("--host", default="127.0.0.1")
    known.add_argument("--port", type=int, default=30000, help="0 takes a free one")
    known.add_argument("--served-model-name")
    known.add_argument("--tp-size", "--tensor-parallel-size", "--tp", type=int, default=1)
    known.add_argument("--max-running-requests", type=int)
    known.add_argument("--max-queued-requests", type=int)
    known.add_argument("--max-total-tokens", type=int, default=1_200_000)
    known.add_argument("--context-length", type=int, default=131_072)
    known.add_argument("--mem-fraction-static", type=float, default=0.88)
    known.add_argument("--random-seed", type=int, default=0)
    known.add_argument("--decode-log-interval", type=int, default=40)
    known.add_argument("--load-snapshot-publish-interval", type=int, default=15)
    known.add_argument("--reasoning-parser")
    known.add_argument("--tool-call-parser")
    known.add_argument("--speculative-algorithm")
    known.add_argument("--api-key")
    known.add_argument("--admin-api-key")
    known.add_argument("--log-level", default="info")
    known.add_argument("--log-level-http")
    for name in ("enable-metrics", "enable-cache-report", "disable-radix-cache"):
        known.add_argument(f"--{name}", action="store_true")
    _add_own(parser)
    taken = {option for action in parser._actions for option in action.option_strings}
    for name in sorted(SWITCHES | WITH_VALUE):
        if f"--{name}" not in taken:
            arguments = "?" if name in SWITCHES else "+"
            parser.add_argument(f"--{name}", nargs=arguments, dest=_IGNORED, help=argparse.SUPPRESS)
    return parser


def _add_own(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("the simulator's own")
    own.add_argument("--curve", help=f"RUNNING:TOKENS_PER_S,... of the whole server (default {DEFAULT_CURVE})")
    own.add_argument("--speed", type=float, default=1.0, help="simulated time runs so many times faster")
    own.add_argument("--instant", action="store_true", help="no service time at all")
    own.add_argument("--prefill-speed", type=float, default=20_000.0, help="prompt tokens a second")
    own.add_argument("--load-s", type=float, default=0.0, help="seconds that loading the model takes (real time)")
    own.add_argument("--health-delay-s", type=float, default=1.0, help="simulated seconds a health probe takes")
    own.add_argument("--lengths", metavar="FILE", help="rules (JSON) or lengths (JSONL)")
    own.add_argument("--mean", type=float, default=2000.0, help="mean answer in tokens where no rule matches")
    own.add_argument("--log-sd", type=float, default=1.0)
    own.add_argument("--no-thinking", action="store_true", help="no reasoning unless a request asks for it")
    own.add_argument("--profile", choices=[profile.value for profile in Profile], default=Profile.SGLANG.value)
    own.add_argument("--fault", action="append", default=[], metavar="NAME[=ARG]", help=", ".join(sorted(KINDS)))
    own.add_argument("--children", action=argparse.BooleanOptionalAction, default=True)
    own.add_argument("--gpus", help="indices, comma separated (default: CUDA_VISIBLE_DEVICES, else 0)")
    own.add_argument("--gpu-state-file", metavar="PATH", help="a file, or a folder in which each server keeps its own")
    own.add_argument("--port-file", metavar="PATH", help="the bound port is written there")
    own.add_argument("--prices", default="0.5,2.0", metavar="IN,OUT[,CACHED]", help="USD per million tokens (profile api)")
    own.add_argument("--rpm", type=int, help="requests a minute (profile api)")
    own.add_argument("--tpm", type=int, help="tokens a minute (profile api)")
    own.add_argument("--chunk-tokens", type=int, default=1, metavar="N", help="tokens in a chunk of a stream (profile api)")


def parse_settings(argv: Sequence[str]) -> Settings:
    """Settings from a command line. Leaves like argparse does: exit code 2 and a sentence on stderr."""
    parser = make_parser()
    arguments = list(argv)
    first = parser.parse_args(arguments)
    if first.config:
        try:
            arguments = _flags_of(first.config) + arguments
        except (OSError, ValueError) as error:
            parser.error(f"--config: {error}")
    args = parser.parse_args(arguments)
    try:
        return _make_settings(args, argv)
    except (OSError, ValueError, UnknownFaultError) as error:
        parser.error(str(error))


def _flags_of(path: str) -> list[str]:
    """A config file's flags come first, so that the command line wins."""
    flags: list[str] = []
    for key, value in parse_flat_yaml(Path(path).read_text(), path).items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            flags.append(flag)
        elif isinstance(value, list):
            flags += [flag, *(str(item) for item in value)]
        elif value is not None and value is not False:
            flags.append(f"{flag}={value}")
    return flags


def _make_settings(args: argparse.Namespace, argv: Sequence[str]) -> Settings:
    if args.speed <= 0:
        raise ValueError(f"--speed {args.speed}: must be above 0")
    profile = Profile(args.profile)
    default_rule = LengthRule(mean=args.mean, log_sd=args.log_sd)
    curve = args.curve or (API_CURVE if profile is Profile.API else DEFAULT_CURVE)
    price_in, price_out, price_cached = (*args.prices.split(","), "", "")[:3]
    faults: list[tuple[str, str | None]] = []
    for text in args.fault:
        name, equals, argument = text.partition("=")
        parse_fault(name, argument if equals else None)
        faults.append((name, argument if equals else None))
    return Settings(
        host=args.host,
        port=args.port,
        port_file=args.port_file,
        model_path=args.model_path,
        served_model_name=args.served_model_name,
        tp_size=args.tp_size,
        max_running_requests=args.max_running_requests,
        max_queued_requests=args.max_queued_requests,
        max_total_tokens=args.max_total_tokens,
        context_length=args.context_length,
        mem_fraction_static=args.mem_fraction_static,
        random_seed=args.random_seed,
        enable_metrics=args.enable_metrics,
        access_log=(args.log_level_http or args.log_level).lower() in ("info", "debug"),
        decode_log_interval=args.decode_log_interval,
        publish_interval=args.load_snapshot_publish_interval,
        reasoning_parser=args.reasoning_parser,
        tool_call_parser=args.tool_call_parser,
        speculative_algorithm=args.speculative_algorithm,
        disable_radix_cache=args.disable_radix_cache,
        enable_cache_report=args.enable_cache_report,
        api_key=args.api_key,
        admin_api_key=args.admin_api_key,
        launch_command=shlex.join(argv),
        thinking=not args.no_thinking,
        curve=SpeedCurve.parse(curve),
        speed=args.speed,
        instant=args.instant,
        prefill_tokens_per_s=args.prefill_speed,
        load_s=args.load_s,
        health_delay_s=args.health_delay_s,
        rules=load_rules(args.lengths, default_rule) if args.lengths else (default_rule,),
        profile=profile,
        faults=tuple(faults),
        children=args.children,
        gpus=_gpus(args.gpus),
        gpu_state_file=args.gpu_state_file,
        prices=Prices(float(price_in), float(price_out or price_in), float(price_cached) if price_cached else None),
        requests_per_minute=args.rpm,
        tokens_per_minute=args.tpm,
        chunk_tokens=max(1, args.chunk_tokens),
    )


def _gpus(text: str | None) -> tuple[int, ...]:
    listed = text if text is not None else os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [part.strip() for part in listed.split(",") if part.strip()]
    if text is None and not all(number.isdigit() for number in numbers):
        return (0,)
    return tuple(int(number) for number in numbers) or (0,)
