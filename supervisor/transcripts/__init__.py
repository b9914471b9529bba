"""Transcripts of conversations with modules: record, replay, compare, play."""
