"""What is asked of the `docker` executable: arguments in, facts out. Which container is ours is container.py's business."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

_QUICK_S = 10.0


class DockerError(Exception):
    """Docker refused or did not answer; the message is a sentence with its remedy."""


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What `docker inspect` says of one container."""

    id: str
    name: str
    running: bool
    exit_code: int | None  # None while it runs
    pid: int | None  # of its first process, seen from here; None when it does not run
    out_of_memory: bool
    labels: dict[str, str]


class Docker:
    """One docker (or podman) executable."""

    def __init__(self, executable: str) -> None:
        self._executable = executable

    def begin_run(self, arguments: Sequence[str], log: int) -> subprocess.Popen[bytes]:
        """`docker run -d ...`, which may have to pull the image first: a process whose output goes to an open file."""
        return self._begin(["run", "-d", *arguments], log)

    def inspect(self, container: str) -> ContainerFacts | None:
        """The facts about a container, by id or name; None where there is none of that name."""
        try:
            answer = orjson.loads(self._ask(["inspect", "--type", "container", container], timeout_s=_QUICK_S))
        except DockerError as error:
            if "no such" in str(error).lower():
                return None
            raise
        return _facts(answer[0]) if answer else None

    def has_image(self, image: str) -> bool:
        """Whether the image is on this machine."""
        try:
            self._ask(["image", "inspect", "--format", "{{.Id}}", image], timeout_s=_QUICK_S)
        except DockerError as error:
            if "no such image" in str(error).lower():
                return False
            raise
        return True

    def ids_with_label(self, label: str) -> list[str]:
        """Ids of all containers, ended ones too, with this label (`name=value`)."""
        return self._ask(["ps", "-a", "-q", "--no-trunc", "--filter", f"label={label}"], timeout_s=_QUICK_S).split()

    def stop(self, container: str, deadline_s: float) -> None:
        """SIGTERM, and SIGKILL after the deadline."""
        self._ask(["stop", "-t", str(max(1, round(deadline_s))), container], timeout_s=deadline_s + 30)

    def kill(self, container: str) -> None:
        """SIGKILL."""
        self._ask(["kill", container], timeout_s=_QUICK_S * 3)

    def remove(self, container: str) -> None:
        """Forgets a container, by force."""
        self._ask(["rm", "-f", container], timeout_s=_QUICK_S * 3)

    def follow_logs(self, container: str, log: int, *, since: float | None = None) -> subprocess.Popen[bytes]:
        """A process that copies what the container prints (from its beginning, or since a moment) to an open file."""
        from_when = [] if since is None else ["--since", f"{since:.3f}"]
        return self._begin(["logs", "-f", *from_when, container], log)

    def _begin(self, arguments: Sequence[str], log: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [self._executable, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise self._not_runnable(error) from error

    def _ask(self, arguments: Sequence[str], *, timeout_s: float) -> str:
        try:
            done = subprocess.run(
                [self._executable, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except OSError as error:
            raise self._not_runnable(error) from error
        except subprocess.TimeoutExpired as error:
            raise DockerError(
                f"`docker {arguments[0]}` did not answer within {timeout_s:.0f} s. Does `docker info` answer?"
            ) from error
        if done.returncode != 0:
            raise DockerError(explain_docker_error(arguments[0], done.stderr or done.stdout))
        return done.stdout

    def _not_runnable(self, error: OSError) -> DockerError:
        return DockerError(f"{self._executable} cannot be run: {error.strerror}. Install Docker, or correct engine.docker.")


def explain_docker_error(verb: str, said: str) -> str:
    """What Docker's words mean, with a remedy where one is known."""
    words = " ".join(said.split())[-400:]
    low = words.lower()
    if "cannot connect to the docker daemon" in low or "is the docker daemon running" in low:
        return "The Docker engine does not run, or this user cannot reach it. Start it (`systemctl start docker`)."
    if "permission denied" in low and "docker" in low:
        return "This user may not use Docker. Add it to the group docker, or name a rootless engine in engine.docker."
    if "could not select device driver" in low or "unknown or invalid runtime name: nvidia" in low:
        return "Docker cannot give GPUs to containers here. Install the NVIDIA Container Toolkit."
    if "port is already allocated" in low or "address already in use" in low:
        return f"The port is taken: {words}. Set engine.port to a free port, or to 0."
    if "unable to find image" in low or "pull access denied" in low or "manifest unknown" in low or "no such image" in low:
        return f"There is no such image here, and it could not be pulled: {words}. Correct engine.image, or `docker pull` it."
    if "is already in use by container" in low:
        return f"A container of this name is there already: {words}. Remove it with `docker rm -f`."
    return f"`docker {verb}` failed: {words or 'it said nothing'}"


def _facts(answer: dict[str, Any]) -> ContainerFacts:
    state = answer["State"]
    running = bool(state.get("Running"))
    return ContainerFacts(
        id=answer["Id"],
        name=str(answer.get("Name", "")).lstrip("/"),
        running=running,
        exit_code=None if running else state.get("ExitCode"),
        pid=state.get("Pid") or None,
        out_of_memory=bool(state.get("OOMKilled")),
        labels=dict((answer.get("Config") or {}).get("Labels") or {}),
    )
