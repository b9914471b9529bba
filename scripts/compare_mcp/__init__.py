"""Hosts of MCP servers, side by side under the same faults: `python -m scripts.compare_mcp`."""
