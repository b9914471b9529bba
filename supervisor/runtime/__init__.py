"""Processes under trio: spawned, spoken with, watched, bounded, stopped and reaped."""
