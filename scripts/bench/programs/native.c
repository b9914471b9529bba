/* native NAME [SOCKET]: a persistent module that costs next to nothing, so that what is measured is the host.
 *
 * It answers health and describe, and with args {"n":N} `stream`: N ui_event lines, then done, and
 * `patch`: N state_patch lines, each with another value, then done. As an agent it answers a prompt "N"
 * like `stream`.
 * It trusts its host: a request is one line, and its fields stand where stdiod writes them.
 *
 * With SOCKET it connects there (tests/system/liveness.py), so that others know when it lives and dies; one that was never asked
 * anything then outlives the end of its input, as programs of other supervisors do. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BLOCK_LINES 256

static void put(const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, n);
        if (written <= 0) exit(0); /* nobody is left to read */
        bytes += written;
        n -= (size_t)written;
    }
}

static void done(const char *id) {
    char line[512];
    int length = snprintf(line, sizeof line,
        "{\"version\":\"0\",\"type\":\"done\",\"requestId\":\"%s\",\"ok\":true}\n", id);
    put(line, (size_t)length);
}

static void patch(const char *id, unsigned long n) {
    char line[512];
    for (unsigned long i = 0; i < n; i++) {
        int length = snprintf(line, sizeof line,
            "{\"version\":\"0\",\"type\":\"state_patch\",\"requestId\":\"%s\","
            "\"patch\":{\"step\":%lu,\"seen\":{\"room-%lu\":true,\"room-%lu\":null}}}\n",
            id, i, i % 100, (i + 50) % 100);
        put(line, (size_t)length);
    }
    done(id);
}

static void stream(const char *id, unsigned long n) {
    char line[512];
    int length = snprintf(line, sizeof line,
        "{\"version\":\"0\",\"type\":\"ui_event\",\"requestId\":\"%s\",\"event\":\"message.chunk\","
        "\"payload\":{\"content\":\" to the sea and back again\"}}\n", id);
    size_t size = (size_t)length;
    char *block = malloc(size * BLOCK_LINES);
    if (!block) exit(1);
    for (size_t i = 0; i < BLOCK_LINES; i++) memcpy(block + i * size, line, size);
    for (; n >= BLOCK_LINES; n -= BLOCK_LINES) put(block, size * BLOCK_LINES);
    put(block, size * n);
    free(block);
    done(id);
}

static void announce(const char *path, const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int births = socket(AF_UNIX, SOCK_STREAM, 0);
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    if (births < 0 || connect(births, (struct sockaddr *)&address, sizeof address)) exit(1);
    dprintf(births, "native %d %s\n", (int)getpid(), name);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "native";
    char request[4096], reply[512], id[64];
    int asked = 0;
    if (argc > 2) announce(argv[2], name);
    while (fgets(request, sizeof request, stdin)) {
        asked = 1;
        if (sscanf(request, "{\"requestId\":\"%63[^\"]\"", id) != 1) continue;
        if (strstr(request, "\"operation\":\"health\"")) {
            int n = snprintf(reply, sizeof reply, "{\"requestId\":\"%s\",\"status\":\"ok\"}\n", id);
            put(reply, (size_t)n);
        } else if (strstr(request, "\"operation\":\"describe\"")) {
            int n = snprintf(reply, sizeof reply,
                "{\"requestId\":\"%s\",\"name\":\"%s\",\"version\":\"1\","
                "\"capabilities\":[],\"inputs\":{},\"outputs\":{}}\n", id, name);
            put(reply, (size_t)n);
        } else {
            const char *count = strstr(request, "\"n\":"), *prompt = strstr(request, "\"prompt\":\"");
            unsigned long n = count ? strtoul(count + 4, NULL, 10) : prompt ? strtoul(prompt + 10, NULL, 10) : 0;
            if (strstr(request, "\"op\":\"patch\"")) patch(id, n);
            else stream(id, n);
        }
    }
    while (argc > 2 && !asked) pause();
    return 0;
}
