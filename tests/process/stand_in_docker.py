"""A `docker` executable without an engine: containers are processes of this machine, their state lies in a folder
(STAND_IN_DOCKER). Only what Headway asks of Docker; standard library only."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HOME = Path(os.environ["STAND_IN_DOCKER"])


def fail(words: str) -> None:
    print(words, file=sys.stderr)
    sys.exit(125 if sys.argv[1] == "run" else 1)


def load(name: str) -> dict[str, object]:
    for file in HOME.glob("*.json"):
        state = json.loads(file.read_text())
        if name in (state["id"], state["name"]):
            return state
    fail(f"Error response from daemon: No such container: {name}")
    raise AssertionError


def alive(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def run(args: list[str]) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-d", action="store_true")
    parser.add_argument("--init", action="store_true")
    for name in ("--name", "--env-file", "--shm-size", "--gpus", "--network", "--memory"):
        parser.add_argument(name)
    parser.add_argument("--label", action="append", default=[])
    parser.add_argument("-p", action="append", default=[])
    parser.add_argument("-v", action="append", default=[])
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args(args)
    image, *command = options.rest
    if image == "missing:latest":
        fail(
            "Unable to find image 'missing:latest' locally\ndocker: Error response from daemon: pull access denied for missing"
        )
    env = {"PATH": os.environ["PATH"]}
    for line in Path(options.env_file).read_text().splitlines():
        name, _, value = line.partition("=")
        env[name] = value
    mounts = [mount.split(":") for mount in options.v]
    command = [next((word.replace(m[1], m[0]) for m in mounts if word.startswith(m[1])), word) for word in command]
    command = ["127.0.0.1" if word == "0.0.0.0" else word for word in command]
    ident = secrets.token_hex(32)
    log = (HOME / f"{ident}.log").open("ab")
    # The shell takes the part of the container's runtime: it writes down how its process ended.
    ended = HOME / f"{ident}.exit"
    script = 'trap "" TERM; "$@" & echo $! >"$0.pid.tmp"; mv "$0.pid.tmp" "$0.pid"; wait $!; echo $? >"$0"'
    subprocess.Popen(
        ["/bin/bash", "-c", script, str(ended), *command], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    while not Path(f"{ended}.pid").exists():
        time.sleep(0.01)
    state = {
        "id": ident,
        "name": options.name,
        "pid": int(Path(f"{ended}.pid").read_text()),
        "labels": dict(label.split("=", 1) for label in options.label),
        "arguments": args,
    }
    (HOME / f"{ident}.json").write_text(json.dumps(state))
    print(ident)


def inspect(name: str) -> None:
    state = load(name)
    running = alive(int(str(state["pid"])))
    ended = HOME / f"{state['id']}.exit"
    deadline = time.monotonic() + 5
    while not running and not ended.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    code = 0 if running else int(ended.read_text())
    print(
        json.dumps(
            [
                {
                    "Id": state["id"],
                    "Name": f"/{state['name']}",
                    "State": {
                        "Running": running,
                        "ExitCode": code,
                        "Pid": state["pid"] if running else 0,
                        "OOMKilled": (HOME / "oom").exists(),
                    },
                    "Config": {"Labels": state["labels"]},
                }
            ]
        )
    )


def end(name: str, number: int, wait_s: float) -> bool:
    pid = int(str(load(name)["pid"]))
    if alive(pid):
        os.kill(pid, number)
    deadline = time.monotonic() + wait_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not alive(pid)


def logs(name: str, follow: bool) -> None:
    state = load(name)
    with (HOME / f"{state['id']}.log").open("rb") as file:
        while True:
            sys.stdout.buffer.write(file.read())
            sys.stdout.buffer.flush()
            if not follow or not (HOME / f"{state['id']}.json").exists():
                return
            time.sleep(0.02)


def listed(label: str) -> None:
    key, _, value = label.removeprefix("label=").partition("=")
    for file in HOME.glob("*.json"):
        state = json.loads(file.read_text())
        if state["labels"].get(key) == value:
            print(state["id"])


def stop(name: str, wait_s: float) -> None:
    if not end(name, signal.SIGTERM, wait_s):
        end(name, signal.SIGKILL, 10)


def remove(name: str) -> None:
    end(name, signal.SIGKILL, 10)
    (HOME / f"{load(name)['id']}.json").unlink()


def image(name: str) -> None:
    if name == "missing:latest":
        fail("Error response from daemon: No such image: missing:latest")


def main() -> None:
    verb, args = sys.argv[1], sys.argv[2:]
    if (HOME / "down").exists():
        fail("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
    with (HOME / "asked").open("a") as file:
        file.write(json.dumps(sys.argv[1:]) + "\n")
    verbs: dict[str, Callable[[], object]] = {
        "run": lambda: run(args),
        "inspect": lambda: inspect(args[-1]),
        "ps": lambda: listed(args[args.index("--filter") + 1]),
        "stop": lambda: stop(args[-1], float(args[args.index("-t") + 1])),
        "kill": lambda: end(args[-1], signal.SIGKILL, 10),
        "rm": lambda: remove(args[-1]),
        "image": lambda: image(args[-1]),
        "logs": lambda: logs(args[-1], "-f" in args),
    }
    if verb not in verbs:
        fail(f"docker: '{verb}' is not a docker command.")
    verbs[verb]()


if __name__ == "__main__":
    main()
