"""What Headway reaches on this machine, against the targets it has: `make bench`, or `python -m tests.bench NAME...`.

A bench is a module with a `measure()` that yields figures. All of them use real processes and the real run directory; each
tells its own conditions.
"""
