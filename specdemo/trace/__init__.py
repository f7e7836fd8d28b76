"""Trace of a run: events, their JSON lines and all metrics. Needs pydantic at most."""
