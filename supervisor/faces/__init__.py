"""Ways into the daemon from outside; a new one touches nothing below this ring."""
