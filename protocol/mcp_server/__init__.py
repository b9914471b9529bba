"""MCP from the server's side, in both eras: the client's messages, and the answers to them."""
