"""Kill, stop, flood and reload at random, and count what is lost."""
