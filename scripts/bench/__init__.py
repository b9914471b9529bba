"""Benchmarks: what stdiod costs, beside the cheapest way to do the same in one run."""
