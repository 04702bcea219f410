"""`share`: writes what is known of a run's end as a page, a picture and a paragraph, for those who wait. Made for cron."""

from __future__ import annotations

import argparse
import json
import os
import time
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from backend.commands.speaking import complain, say
from backend.runs import find_run, runs_folder

MACHINE_ZONE: Final = Path("/etc/localtime")


def share(options: argparse.Namespace) -> int:
    """Writes the three files and says where. Also while no supervisor works, from what it left.

    Raises ConfigError and RunDirError where the run cannot be read, OSError where nothing can be written.
    """
    from backend.report.share.files import forms_of, write_forms
    from backend.report.share.snapshot import take_snapshot

    try:
        zone = zone_of(options.zone)
    except (ZoneInfoNotFoundError, ValueError):
        complain(f"There is no time zone {options.zone!r}. Give one as Europe/Berlin or UTC.")
        return 1
    run = find_run(options.run, runs_folder())
    forms = forms_of(take_snapshot(run, time.time(), zone))
    files = write_forms(forms, Path(options.to).expanduser().absolute() if options.to else run.shared)
    if options.json:
        told = {"page": str(files.page), "picture": str(files.picture), "paragraph": str(files.paragraph)}
        print(json.dumps(told | {"words": forms.paragraph.strip()}, indent=2))
    else:
        say(f"{files.page}\n{files.picture}\n{files.paragraph}\n{forms.paragraph.strip()}")
    return 0


def zone_of(name: str | None) -> tzinfo:
    """The zone of this name, else $TZ's, else the machine's. Raises ZoneInfoNotFoundError and ValueError for a name only."""
    if name is not None:
        return ZoneInfo(name)
    try:
        if asked := os.environ.get("TZ"):
            return ZoneInfo(asked.removeprefix(":"))
        with MACHINE_ZONE.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC
