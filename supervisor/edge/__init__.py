"""Programs that are clients of the control socket, and what they drive it with."""
