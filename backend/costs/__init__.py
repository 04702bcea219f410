"""PURE: what staying and going cost, and how long each takes: prices, limits of an API, comparison, break-even, mixed plan.

It builds on the forecast, which knows nothing of it. Where prices come from is `backend/prices`'s
concern, what is said of all this is `report`'s.
"""
