"""What a module may have the host do while it serves a request (docs/protocol.md)."""
