"""The fleet as one MCP server, in both eras: on lines (`stdiod mcp`) and over HTTP (`/mcp`)."""
