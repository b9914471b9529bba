"""Transcripts of what a module was told and said: record, replay, compare, play."""
