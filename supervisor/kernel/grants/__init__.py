"""What modules are allowed, by the operator's policy and by the answers of people."""
