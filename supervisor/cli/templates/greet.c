/* A module: it reads requests from stdin, line by line, and answers each with a line on stdout.
   What is for people goes to stderr: stdiod keeps it in the module's log.

   C has no JSON. stdiod writes "requestId", "tool", "operation" and "op" first and without spaces;
   a string is passed on as it stands there, with its escapes. For more, use a library. */

#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text { const char *at; int size; };

/* Return the string behind `key`, as it stands in the line; empty if it is not there. */
static struct text string_after(const char *line, const char *key)
{
    const char *found = strstr(line, key);
    if (found == NULL)
        return (struct text){"", 0};
    const char *begin = found + strlen(key), *end = begin;
    while (*end && *end != '"')
        end += *end == '\\' && end[1] ? 2 : 1;
    return (struct text){begin, (int)(end - begin)};
}

static int is(struct text text, const char *word)
{
    return text.size == (int)strlen(word) && memcmp(text.at, word, (size_t)text.size) == 0;
}

static void answer(const char *line)
{
    struct text id = string_after(line, "{\"requestId\":\"");
    struct text operation = string_after(line, "\"operation\":\"");
    printf("{\"requestId\":\"%.*s\",", id.size, id.at);
    if (is(operation, "health")) {
        printf("\"status\":\"ok\"}\n");
    } else if (is(operation, "describe")) { /* all there is to say stands in module.json */
        printf("\"ok\":true,\"result\":{}}\n");
    } else if (is(string_after(line, "\"input\":{\"op\":\""), "greet")) {
        struct text name = string_after(line, "\"name\":\"");
        printf("\"ok\":true,\"result\":\"hello %.*s\"}\n", name.size, name.at);
    } else {
        printf("\"ok\":false,\"error\":{\"code\":\"unsupported_op\",\"message\":\"no such op\"}}\n");
    }
    fflush(stdout);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0)
        answer(line);
    free(line);
    return 0;
}
