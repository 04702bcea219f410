"""Questions that may take long (they read texts, or are anybody's SQL) are answered by a process of their own.

That process can be ended at any moment, has its own limits of time and memory, and may neither write nor see this one's
secrets. It says a line of JSON and then the rows as an Arrow stream.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from backend.run_dir import RunDir, RunDirError

LIMIT_S: Final = 30.0
MEMORY_BYTES: Final = 2 << 30  # of DuckDB; the process as a whole may take twice as much
RESULT_ROWS: Final = 100_000
RESULT_BYTES: Final = 64 << 20
_ROOT: Final = Path(__file__).resolve().parents[2]
_COMMAND: Final = (sys.executable, "-m", "backend.report.long_question_process")
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "HEADWAY_RUNS")


@dataclass(frozen=True, slots=True)
class Result:
    """Rows as a pyarrow table; `cut` where there are more than RESULT_ROWS or RESULT_BYTES."""

    table: Any
    cut: bool
    took_s: float


class LongQuestion:
    """One question on its way. Any thread may look at it or cancel it."""

    def __init__(
        self,
        run: RunDir,
        *,
        name: str | None = None,
        sql: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        other: RunDir | None = None,
        limit_s: float = LIMIT_S,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """Asks queries/`name`.sql or a checked statement `sql`; `other` is the run to compare with.

        Raises RunDirError where no process can be started.
        """
        asked = {
            "run": str(run.root.absolute()),
            "name": name,
            "sql": sql,
            "parameters": dict(parameters or {}),
            "other": None if other is None else str(other.root.absolute()),
            "limit_s": limit_s,
            "memory_bytes": memory_bytes,
            "result_rows": RESULT_ROWS,
            "result_bytes": RESULT_BYTES,
        }
        self.run, self.limit_s = run, limit_s
        self._began = time.monotonic()
        self._cancelled = False
        self._answer: Result | str | None = None
        self._done = threading.Event()
        environment = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                _COMMAND, cwd=_ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise RunDirError(f"No process could be started to look through {run.name}: {error}.") from None
        threading.Thread(target=self._wait, args=(json.dumps(asked).encode(),), daemon=True).start()

    @property
    def pid(self) -> int:
        """The process that answers."""
        return self._process.pid

    def seconds(self) -> float:
        """How long it is on its way, or took."""
        return self._answer.took_s if isinstance(self._answer, Result) else time.monotonic() - self._began

    def wait(self, timeout_s: float) -> bool:
        """Whether it is answered, cancelled or failed within `timeout_s`."""
        return self._done.wait(timeout_s)

    def cancel(self) -> None:
        """Ends the process at once."""
        self._cancelled = True
        self._process.kill()

    def result(self) -> Result:
        """The answer; call it once `wait` said yes. Raises RunDirError with the reason where there is none."""
        if isinstance(self._answer, Result):
            return self._answer
        raise RunDirError(self._answer or "It is not answered yet.")

    def _wait(self, asked: bytes) -> None:
        try:
            out, err = self._process.communicate(asked, timeout=self.limit_s + 5.0)
            self._answer = self._understood(out, err)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            self._answer = self._too_slow()
        finally:
            self._done.set()

    def _understood(self, out: bytes, err: bytes) -> Result | str:
        if self._cancelled:
            return "Cancelled."
        code = self._process.returncode
        if code in (-signal.SIGALRM, -signal.SIGXCPU):
            return self._too_slow()
        head, _, rows = out.partition(b"\n")
        try:
            said = json.loads(head)
        except ValueError:
            last = err.decode("utf-8", "replace").strip().rpartition("\n")[2][:500]
            return f"The process that answers ended with code {code}, without an answer. {last}".strip()
        if "error" in said:
            return str(said["error"])
        from pyarrow import ipc

        return Result(ipc.open_stream(BytesIO(rows)).read_all(), said["cut"], time.monotonic() - self._began)

    def _too_slow(self) -> str:
        return f"It took longer than {self.limit_s:.0f} s and was ended. Ask for less: one dataset, fewer columns, a LIMIT."
