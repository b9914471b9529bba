"""The dialects: one file each, and one line each in `registry`."""
