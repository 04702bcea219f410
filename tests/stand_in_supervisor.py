"""What `control` expects of a supervisor and no more: takes the lock, beats, answers intents, leaves when asked.

Run as `python stand_in_supervisor.py [--fail WORDS | --mute] RUN`.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path


def main() -> int:
    """Lives until a `stopped` intent or SIGTERM; 3 if another holds the lock."""
    root = Path(sys.argv[-1])
    if "--fail" in sys.argv:
        print(f"RuntimeError: {sys.argv[sys.argv.index('--fail') + 1]}", flush=True)
        return 1
    if "--mute" in sys.argv:
        time.sleep(60)
        return 0
    fd = os.open(root / "supervisor.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    con = sqlite3.connect(root / "state.sqlite", timeout=30, isolation_level=None)
    phase = "running"
    while True:
        status = {"phase": phase, "concurrency": 8, "in_flight": 0, "datasets": [], "replicas": [], "order": []}
        con.execute(
            "INSERT OR REPLACE INTO heartbeat VALUES (1, ?, ?, 1, ?, ?)", (time.time(), os.getpid(), phase, json.dumps(status))
        )
        if phase == "stopped":
            return 0
        for row_id, subject, action, value in con.execute(
            "SELECT id, subject, action, value FROM intents WHERE id NOT IN (SELECT intent_id FROM intent_answers)"
        ).fetchall():
            refused = action == "redo"
            con.execute(
                "INSERT INTO intent_answers VALUES (?, ?, ?, ?)",
                (row_id, time.time(), int(not refused), f"No {action}." if refused else f"{subject} {action}: as you wish."),
            )
            if subject == "run" and json.loads(value).get("want") == "stopped":
                phase = "stopped"
        if ended:
            phase = "stopped"
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
