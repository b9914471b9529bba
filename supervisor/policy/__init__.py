"""Pure decisions of the supervisor, with time as an argument."""
