"""Sessions: state that merges and survives, and what was done in it."""
