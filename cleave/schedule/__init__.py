"""Operator scheduling: from a candidate and one binding of its symbols to tile programs with bindings."""

from cleave.schedule.choose import schedule

__all__ = ["schedule"]
