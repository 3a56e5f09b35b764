"""The engine: a pure function of (calls, policy, profile, fleet, seed)."""

from replay.engine.simulate import Results, schedule_requests, simulate

__all__ = ["Results", "schedule_requests", "simulate"]
