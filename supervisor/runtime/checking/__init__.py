"""Args that nothing bounds the checking of, checked in processes of the daemon's own."""
