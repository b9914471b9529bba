"""What the daemon knows and decides: the invoke pipeline, its own operations, its status."""
