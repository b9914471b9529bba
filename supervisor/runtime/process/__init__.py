"""One process from its first byte to its last: spawned, spoken with, bounded, reaped."""
