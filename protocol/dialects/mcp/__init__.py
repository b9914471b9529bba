"""Dialect `mcp`: a server of the Model Context Protocol over stdio, of either era (docs/mcp.md)."""
