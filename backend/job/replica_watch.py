"""What is remembered and concluded about one server of ours while it is watched, whatever runs it: its phase, its record, what
it answers, when its load last moved, why it ended. Starting and ending it is left to server.py and container.py."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import aiohttp

from backend.config import RunConfig
from backend.job import server_log
from backend.job.launch_command import gpus_of
from backend.job.load_movement import LoadMovement, read_signs
from backend.job.process_tree import ProcessMark
from backend.job.replica import AbortFailed, Endpoint, GpuMemoryUsed, ReplicaObservation, ReplicaPhase
from backend.job.server_probe import KeyAnswer, ServerProbe, abort_requests
from backend.job.server_record import ServerRecord, save_record
from backend.job.start_errors import explain_exit, explain_failed_start, last_words
from backend.run_dir import RunDir


class ReplicaWatch:
    """The state of one watched replica."""

    def __init__(
        self, config: RunConfig, run: RunDir, environ: Mapping[str, str], index: int, gpu_memory_used: GpuMemoryUsed
    ) -> None:
        self.name = str(index)
        self.log_path = run.server_log(self.name)
        self.record: ServerRecord | None = None
        self.probe: ServerProbe | None = None
        self.phase = ReplicaPhase.ABSENT
        self.exit_code: int | None = None
        self._config = config
        self._servers = run.servers
        self._environ = environ
        self._index = index
        self._gpu_memory_used = gpu_memory_used
        self._since = time.time()
        self._reason: str | None = None
        self._saved = True
        self._movement = LoadMovement(self._since)

    @property
    def is_watching(self) -> bool:
        """Whether there is a server that loads or is ready."""
        return self.phase in (ReplicaPhase.LOADING, ReplicaPhase.READY)

    def gpu_memory_used(self) -> int | None:
        """Bytes in use on the GPUs of this replica; None where it cannot be known."""
        return self._gpu_memory_used(gpus_of(self._config.engine, self._index, self._environ))

    def begin(self, record: ServerRecord, phase: ReplicaPhase, now: float) -> None:
        """A server was started (LOADING) or taken over (LOADING or READY)."""
        self.probe = ServerProbe(record.base_url, record.api_key)
        self.probe.version = record.version
        self.probe.was_ready = phase is ReplicaPhase.READY
        self._movement = LoadMovement(now)
        self.exit_code = None
        self.enter(phase, now)
        ready_at = now if phase is ReplicaPhase.READY and record.ready_at is None else record.ready_at
        self.remember(replace(record, ready_at=ready_at))

    def end(self, now: float) -> None:
        """Nothing is left of it."""
        self.record, self.probe = None, None
        self.enter(ReplicaPhase.ABSENT, now)

    def enter(self, phase: ReplicaPhase, now: float, reason: str | None = None) -> None:
        """A phase begins."""
        self.phase, self._since, self._reason = phase, now, reason

    def remember(self, record: ServerRecord) -> None:
        """Keeps the record, on disk as well; on a full disk, as soon as there is room."""
        self.record = record
        try:
            save_record(self._servers, record)
            self._saved = True
        except OSError:
            self._saved = False

    def save_again(self) -> None:
        """Writes the record where that failed before."""
        if not self._saved and self.record is not None:
            self.remember(self.record)

    def endpoint(self) -> Endpoint | None:
        """Where its requests go; None without a server."""
        record = self.record
        if record is None:
            return None
        return Endpoint(self.name, record.base_url, record.api_key, record.launch, owned=True)

    def log(self) -> str:
        """The end of what this life of the server printed."""
        return "" if self.record is None else server_log.read_tail(self.log_path, self.record.log_offset)

    async def abort(self, session: aiohttp.ClientSession, rids: Sequence[str] | None) -> None:
        """Aborts these requests on it, or all. Raises AbortFailed."""
        endpoint = self.endpoint()
        if endpoint is None:
            raise AbortFailed(f"replica {self.name} has no server to abort requests on.")
        await abort_requests(session, endpoint, rids)

    def forget_answers(self) -> None:
        """It is about to be ended: what it answered no longer counts."""
        if self.probe is not None:
            self.probe.forget()

    async def ask(self, session: aiohttp.ClientSession, now: float) -> None:
        """Asks the server how it is; waits at most a moment for the answer."""
        probe = self.probe
        if probe is None:
            return
        await probe.look(session, now, urgent=self.phase is ReplicaPhase.LOADING)
        if self.probe is not probe or self.record is None:
            return  # stopped meanwhile
        if probe.version is not None and probe.version != self.record.version:
            self.remember(replace(self.record, version=probe.version))

    def judge_load(self, now: float, processes: Collection[ProcessMark], *, port_is_ours: bool, must_take_key: bool) -> None:
        """Ready, or failed: nothing moved for too long, or it cannot be talked to. `port_is_ours`: the answers come from our
        own server; `must_take_key`: nothing but its key proves that."""
        record, probe = self.record, self.probe
        if record is None or probe is None or self.phase is not ReplicaPhase.LOADING:
            return
        ignored = record.api_key is None or probe.key is KeyAnswer.IGNORED
        if probe.ready and port_is_ours and (probe.key is KeyAnswer.TAKEN or (ignored and not must_take_key)):
            self.enter(ReplicaPhase.READY, now)
            # A server that ignores its key (a wrapper dropped the argument) must not be taken for another one later.
            self.remember(replace(record, ready_at=now, api_key=None if ignored else record.api_key))
            return
        if probe.ready and port_is_ours and probe.key is KeyAnswer.REFUSED and not must_take_key:
            reason = (
                "The server answers, but not to the API key that Headway gave it in --config. Take keys out of engine.args."
            )
            self.enter(ReplicaPhase.START_FAILED, now, reason)
            return
        self._movement.look(read_signs(server_log.log_bytes(self.log_path), processes, self.gpu_memory_used()), now)
        still_s = now - self._movement.last_movement_at
        if still_s > self._config.engine.ready_timeout_s:
            said = last_words(self.log())
            self.enter(
                ReplicaPhase.START_FAILED,
                now,
                f"The server did not become ready, and for {still_s:.0f} s nothing moved (log, disk, memory, processes). "
                + (f"The last it said: {said.rstrip('.')}. " if said else "It printed nothing. ")
                + "If the model only needs longer, raise engine.ready_timeout_s.",
            )

    def note_end(self, exit_code: int | None, now: float, *, first: str = "") -> None:
        """The server ended by itself. `first`: a sentence known from elsewhere."""
        ready = self.phase is ReplicaPhase.READY
        port = 0 if self.record is None else self.record.port
        explain = explain_exit if ready else explain_failed_start
        self.exit_code = exit_code
        reason = first + explain(self.log(), exit_code, model=self._config.model.path, port=port)
        self.enter(ReplicaPhase.EXITED if ready else ReplicaPhase.START_FAILED, now, reason)

    def observation(self, pid: int | None) -> ReplicaObservation:
        """What is seen now, as the supervisor gets it."""
        ready = self.phase is ReplicaPhase.READY
        return ReplicaObservation(
            replica=self.name,
            phase=self.phase,
            since=self._since,
            endpoint=self.endpoint() if ready else None,
            pid=pid,
            exit_code=self.exit_code,
            reason=self._reason,
            last_movement_at=self._movement.last_movement_at if self.phase is ReplicaPhase.LOADING else None,
            version=self.probe.version if self.probe is not None else None,
            answers=self.probe.ready if self.probe is not None and ready else None,
            command=self.record.command if self.record is not None else [],
        )
