"""The daemon's memory on disk: one SQLite file, one thread that writes it, pages for readers."""
