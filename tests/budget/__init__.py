"""How much work is done, in counts and never in times: each bound fails when the work doubles.

What would depend on timing is taken in turns instead (`turns`): whoever is at the other end of a
pipe acts only when the event loop has nothing left to do, so that each run does exactly the same.
"""
