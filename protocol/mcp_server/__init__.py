"""MCP as its server speaks it, in both eras: what a client says, and what it is told."""
