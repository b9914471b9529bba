"""The conformance of a module to its protocol: the clauses, played against its real process."""
