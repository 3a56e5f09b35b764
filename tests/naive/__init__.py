"""The engine again, slowly: plain Python, written to be read. The compiled one is held to it."""

from tests.naive.world import schedule_requests, simulate

__all__ = ["schedule_requests", "simulate"]
