"""`python -m backend.engine_cpu`: installs the CPU engine below the current folder."""

from __future__ import annotations

import sys
from pathlib import Path

from backend.engine_cpu.install import InstallError, install
from backend.engine_cpu.place import EnginePlace


def main() -> int:
    """Exit code 0: installed or already there; 1: refused, with the reason on standard error."""
    place = EnginePlace(Path.cwd())
    try:
        changed = install(place)
    except InstallError as error:
        print(f"engine-cpu: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("engine-cpu: interrupted; run `make engine-cpu` again, it starts over where needed", file=sys.stderr)
        return 130
    print(f"CPU engine: {'ready' if changed else 'nothing to do, it is ready'} in {place.folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
