"""Module descriptors: the model, its rules, and the reading of a file."""
