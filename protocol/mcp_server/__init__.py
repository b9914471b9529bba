"""MCP from the server's side, in both eras: between a client's messages and the control socket.

What happens to a `tools/call` is told by `methods.call_tool`, from the name to the result. Around
it:

- The host (`stdiod mcp`, the gateway) reads a message: `McpServer.receive_message` (`server`). It
  says which client it is of, and so the era (`client`; over HTTP by its headers, too). It becomes a
  `ClientRequest` (`request`), and its method runs as a task up to where it waits (`tasks`).
- The lists of the view are fetched and followed by `offered`, and laid out by `table`: there a name
  leads to a module's op, and definitions are mended for strict clients (`mending`).
- Requests to the daemon are opened, and asked again after it was away, by `daemon_link`; the host
  writes them, and passes the daemon's events on (`McpServer.receive_event`).
- `ClientRequest.finish` mends the result (`results`, `mending`) for the client's revision. The host
  takes the line by `messages_to_send`, with the exchange that it is for.
"""
