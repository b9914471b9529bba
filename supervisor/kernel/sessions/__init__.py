"""Sessions: state that merges and outlives the daemon, and the history of invocations."""
