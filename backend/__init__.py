"""Headway without its pages: `job` works, `report` answers, `control` asks; the pure cores stand beside them."""
