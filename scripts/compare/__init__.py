"""Compare stdiod with other supervisors on the faults that all of them can be shown."""
