"""The client of the control socket (`protocol/client.py`) with a socket under it."""
