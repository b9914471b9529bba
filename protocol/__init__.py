"""What bytes mean: framing, descriptors, events, errors and dialects, without any I/O.

Nothing below this package starts a process, reads a clock, draws a random number or logs:
ids, time and bytes are handed in, typed frozen values come out.
"""
