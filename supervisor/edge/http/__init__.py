"""The gateway: HTTP, WebSocket and MCP over HTTP, a client of the control socket (docs/http.md)."""
