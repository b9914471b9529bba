"""Pure decisions of the supervisor: what follows from what, with time as an argument."""
