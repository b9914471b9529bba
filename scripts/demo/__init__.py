"""The demo: a small fleet being supervised, shown and checked."""
