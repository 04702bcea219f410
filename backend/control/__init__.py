"""What people do to a run: create it, start its supervisor, write down what they want. Looking at it is `report`'s work.

Pages that only show a run never import this package.
"""

from __future__ import annotations


class ControlError(Exception):
    """Something that was asked cannot be done; the message says why and what to do."""
