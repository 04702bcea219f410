"""When the lives of a replica ended, and why: what decides whether and when it is started again."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Lives:
    """The ended lives of one replica. Times are epoch seconds."""

    ended_at: float | None = None  # of the last one, if it ended by itself and no wish has set it aside
    end_reason: str | None = None
    ends: list[float] = field(default_factory=list)  # of all of them, oldest first
    failed_starts: int = 0  # in a row

    def end(self, now: float, reason: str, *, failed_start: bool) -> None:
        """A life ended by itself; `failed_start`: before it was ready."""
        self.ended_at, self.end_reason = now, reason
        self.ends.append(now)
        self.failed_starts = self.failed_starts + 1 if failed_start else 0

    def recent(self, now: float, window_s: float) -> int:
        """How many ended within the window."""
        return sum(1 for at in self.ends if now - at < window_s)

    def forgive(self) -> None:
        """Somebody asked for another start: what was no longer counts."""
        self.ended_at = self.end_reason = None
        self.ends.clear()
        self.failed_starts = 0
