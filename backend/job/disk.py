"""Whether the disks of a run have room: below a floor nothing more is asked for, so that what comes back can still be kept."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HYSTERESIS: Final = 1.05  # it goes on when there is a little more room than the floor
GB: Final = 1e9


class DiskWatch:
    """Watches the file systems of some folders."""

    def __init__(self, folders: Sequence[Path], floor_gb: float) -> None:
        self._folders = folders
        self._floor_gb = floor_gb
        self._below = False

    def problem(self) -> str | None:
        """Why nothing may be sent now, as a sentence; None while there is room. Raises OSError where a folder is gone."""
        floor_gb = self._floor_gb * (HYSTERESIS if self._below else 1.0)
        for folder in self._folders:
            free_gb = shutil.disk_usage(folder).free / GB
            if free_gb < floor_gb:
                self._below = True
                return (
                    f"{folder} has {free_gb:.2f} GB free, less than disk_floor_gb = {self._floor_gb:g}: no new requests are "
                    f"sent. Make room; it goes on by itself."
                )
        self._below = False
        return None
