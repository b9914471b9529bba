"""Whether a module keeps its protocol: the clauses, played against its real process."""
