/* mcp_echo: an MCP server in C with one tool, `echo`, that costs next to nothing, so that what is
 * measured is the client. It trusts it: a message is one line, and its first "id" is its own. An
 * answer goes out when all lines that came with one read have been answered. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char in[1 << 20], out[1 << 20];
static size_t out_size;

static void flush(void) {
    for (size_t at = 0; at < out_size;) {
        ssize_t n = write(STDOUT_FILENO, out + at, out_size - at);
        if (n <= 0) exit(0); /* nobody is left to read */
        at += (size_t)n;
    }
    out_size = 0;
}

static void answer(const char *id, const char *member) {
    if (out_size + 1024 > sizeof out) flush();
    out_size += (size_t)snprintf(out + out_size, 1024,
        "{\"jsonrpc\":\"2.0\",\"id\":%.*s,%s}\n", (int)strcspn(id, ",}"), id, member);
}

static void serve(char *line) {
    const char *id = strstr(line, "\"id\":");
    if (!id) return; /* a notification */
    id += strlen("\"id\":");
    if (strstr(line, "\"method\":\"tools/call\""))
        answer(id, "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"1\"}],\"isError\":false}");
    else if (strstr(line, "\"method\":\"tools/list\""))
        answer(id, "\"result\":{\"tools\":[{\"name\":\"echo\",\"inputSchema\":{\"type\":\"object\"}}]}");
    else if (strstr(line, "\"method\":\"initialize\""))
        answer(id, "\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},"
            "\"serverInfo\":{\"name\":\"mcp_echo\",\"version\":\"1\"}}");
    else
        answer(id, "\"error\":{\"code\":-32601,\"message\":\"there is no such method\"}");
}

int main(void) {
    size_t held = 0;
    for (ssize_t n; (n = read(STDIN_FILENO, in + held, sizeof in - 1 - held)) > 0;) {
        held += (size_t)n;
        char *line = in, *end;
        while ((end = memchr(line, '\n', (size_t)(in + held - line)))) {
            *end = 0;
            serve(line);
            line = end + 1;
        }
        held = (size_t)(in + held - line);
        memmove(in, line, held);
        flush();
    }
    return 0;
}
