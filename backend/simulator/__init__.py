"""An SGLang-shaped server without GPUs: the same endpoints, metrics, log lines and ways to fail, on a speed curve.

Started as `python -m backend.simulator`; in tests through `server.SimulatedServer` or `launch.SimulatorProcess`.
Knows nothing of the rest of Headway.
"""
