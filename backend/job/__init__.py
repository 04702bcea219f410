"""The process that works: one supervisor a run owns the engine, drives the datasets and records what happens."""
