"""MCP from the server's side, in both eras: between a client's messages and the control socket.

A `tools/call`, from the client and back:

1. The host (`stdiod mcp`, the gateway) reads a message: `McpServer.receive_message` (`server`).
2. It says which client that is, and so the era (`client`, over HTTP by its headers, too).
3. It becomes a `ClientRequest` (`request`), which is open until its answer.
4. Its method, one `async def` of `methods`, runs as a task (`tasks`) up to where it waits.
5. The name leads to a module's op by the lists of the view: `offered` fetches and follows them, and
   `table` lays them out, mended (`mending`).
6. `invoke` opens a `DaemonRequest` (`daemon_link`), which the host writes to the control socket.
7. The host passes the daemon's events on (`receive_event`), and the task goes on: progress and logs
   become notifications, and questions are put to the client (`request`).
8. The answer of the daemon becomes a result (`results`), with the bytes of files.
9. `ClientRequest.finish` mends it for the client's revision; over HTTP, one that is too long for an
   event of a stream becomes a link.
10. The host takes the line by `messages_to_send`, with the exchange that it is for.
"""
