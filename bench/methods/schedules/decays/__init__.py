"""Schedules that may follow a warm-up, one per module."""
