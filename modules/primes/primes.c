#if 0
# primes: a native module in one file. To a shell, the lines up to the first endif are a script that
# compiles the whole file and becomes the result; to a C compiler they are skipped. Try it:
#   echo "{\"operation\":\"invoke\",\"input\":{\"op\":\"factor\",\"args\":{\"n\":360}}}" | sh primes.c
# The program deletes itself and its folder as it starts, so nothing has to be cleaned up afterwards.
set -- ${CC:-cc}
command -v "$1" >/dev/null || {
  echo "primes: there is no C compiler \"$1\" here: install one, or name one in CC" >&2
  exit 127
}
dir=$(mktemp -d "${TMPDIR:-/tmp}/primes.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM
"$@" -O2 -o "$dir/primes" "$0" </dev/null >&2 || exit
exec "$dir/primes" "$dir"
#endif

#define _POSIX_C_SOURCE 200809L
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION "1.0.0"
#define MAX_DEPTH 1024               /* nesting: bounds the recursion below, and so the stack */
#define MAX_LINE ((size_t)64 << 20)  /* bytes: a longer line is dropped, as it would fill the memory */
#define BATCH ((size_t)1 << 20)      /* bytes: answers are written at the latest when there are so many */

__extension__ typedef unsigned __int128 u128;
typedef struct { const char *at, *end; } Span;  /* a raw piece of the input line; absent when at is NULL */

/* ---- Output: answers are collected, and leave in one write per batch of requests that was read. ---- */

static char *out;
static size_t out_len, out_cap;

static void *grown(void *block, size_t size) {
    void *larger = realloc(block, size);
    if (!larger) { fputs("primes: out of memory\n", stderr); exit(1); }
    return larger;
}

static void put(const char *bytes, size_t n) {
    if (n > out_cap - out_len) out = grown(out, out_cap = 2 * (out_len + n));
    memcpy(out + out_len, bytes, n);
    out_len += n;
}

static void put_text(const char *text) { put(text, strlen(text)); }

static void put_span(Span span) { put(span.at, (size_t)(span.end - span.at)); }

static void put_number(uint64_t n) {
    char digits[21];
    put(digits, (size_t)sprintf(digits, "%llu", (unsigned long long)n));
}

static void flush(void) {
    for (size_t sent = 0; sent < out_len;) {
        ssize_t n = write(STDOUT_FILENO, out + sent, out_len - sent);
        if (n >= 0) sent += (size_t)n;
        else if (errno != EINTR) exit(0);  /* nobody is left to read */
    }
    out_len = 0;
}

/* ---- JSON: checked in full, copied never. A line ends in NUL, which no valid token contains, so that
        nothing here reads past it. Each function returns where its token ends, or NULL for a fault. ---- */

static const char *skip_value(const char *p, int depth);

static const char *skip_space(const char *p) {
    while (*p == ' ' || *p == '\t' || *p == '\r') p++;
    return p;
}

static const char *skip_string(const char *p) {
    for (p++; *p != '"'; p++) {
        if ((unsigned char)*p < 0x20) return NULL;
        if (*p != '\\') continue;
        if (*++p == 'u') {
            for (int i = 0; i < 4; i++) if (!isxdigit((unsigned char)*++p)) return NULL;
        } else if (!*p || !strchr("\"\\/bfnrt", *p)) return NULL;
    }
    return p + 1;
}

static const char *skip_digits(const char *p) {
    if (!isdigit((unsigned char)*p)) return NULL;
    while (isdigit((unsigned char)*p)) p++;
    return p;
}

static const char *skip_number(const char *p) {
    if (*p == '-') p++;
    if (*p == '0') p++;
    else if (!(p = skip_digits(p))) return NULL;
    if (*p == '.' && !(p = skip_digits(p + 1))) return NULL;
    if (*p != 'e' && *p != 'E') return p;
    p++;
    return skip_digits(*p == '+' || *p == '-' ? p + 1 : p);
}

/* Whether a JSON string says this ASCII word, however it is escaped. */
static bool says(Span token, const char *word) {
    if (!token.at || *token.at != '"') return false;
    for (const char *p = token.at + 1; p < token.end - 1; word++) {
        unsigned long c = (unsigned char)*p++;
        if (c == '\\') {
            c = (unsigned char)*p++;
            if (c == 'u') {
                c = strtoul((char[]){p[0], p[1], p[2], p[3], 0}, NULL, 16);
                p += 4;
            } else if (isalpha((int)c)) return false;  /* \n and the like are in no word of ours */
        }
        if (!*word || c != (unsigned char)*word) return false;
    }
    return !*word;
}

/* Walk an object, and note the values of the wanted keys: in any order, and the last one of each counts. */
static const char *walk_object(const char *p, int depth, int n, const char *const *keys, Span *values) {
    if (*(p = skip_space(p + 1)) == '}') return p + 1;
    for (;; p = skip_space(p + 1)) {
        Span key = {p, *p == '"' ? skip_string(p) : NULL};
        if (!key.end || *(p = skip_space(key.end)) != ':') return NULL;
        Span value = {skip_space(p + 1), NULL};
        if (!(value.end = skip_value(value.at, depth + 1))) return NULL;
        for (int i = 0; i < n; i++) if (says(key, keys[i])) values[i] = value;
        if (*(p = skip_space(value.end)) == '}') return p + 1;
        if (*p != ',') return NULL;
    }
}

static const char *skip_array(const char *p, int depth) {
    if (*(p = skip_space(p + 1)) == ']') return p + 1;
    for (;; p++) {
        if (!(p = skip_value(skip_space(p), depth + 1))) return NULL;
        if (*(p = skip_space(p)) == ']') return p + 1;
        if (*p != ',') return NULL;
    }
}

static const char *skip_value(const char *p, int depth) {
    if (depth > MAX_DEPTH) return NULL;
    switch (*p) {
    case '{': return walk_object(p, depth, 0, NULL, NULL);
    case '[': return skip_array(p, depth);
    case '"': return skip_string(p);
    case 't': return strncmp(p, "true", 4) ? NULL : p + 4;
    case 'f': return strncmp(p, "false", 5) ? NULL : p + 5;
    case 'n': return strncmp(p, "null", 4) ? NULL : p + 4;
    default: return skip_number(p);
    }
}

static bool whole_number(Span token, uint64_t *n) {
    if (!token.at || !isdigit((unsigned char)*token.at)) return false;
    *n = 0;
    for (const char *p = token.at; p < token.end; p++) {
        if (!isdigit((unsigned char)*p)) return false;
        u128 next = (u128)*n * 10 + (unsigned)(*p - '0');
        if (next > UINT64_MAX) return false;
        *n = (uint64_t)next;
    }
    return true;
}

/* ---- Arithmetic: Miller-Rabin, with the bases that leave no doubt below 2^64, and Pollard rho. ---- */

static const unsigned SMALL[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
#define SMALLS (sizeof SMALL / sizeof *SMALL)

static uint64_t power(uint64_t base, uint64_t exponent, uint64_t modulus) {
    uint64_t product = 1;
    for (; exponent; exponent >>= 1, base = (uint64_t)((u128)base * base % modulus))
        if (exponent & 1) product = (uint64_t)((u128)product * base % modulus);
    return product;
}

static bool is_prime(uint64_t n) {
    if (n < 2) return false;
    for (size_t i = 0; i < SMALLS; i++) if (n % SMALL[i] == 0) return n == SMALL[i];
    uint64_t odd = n - 1;
    while (odd % 2 == 0) odd /= 2;
    for (size_t i = 0; i < SMALLS; i++) {
        uint64_t x = power(SMALL[i], odd, n), d = odd;
        for (; x != 1 && x != n - 1 && d != (n - 1) / 2; d *= 2) x = (uint64_t)((u128)x * x % n);
        if (x != n - 1 && !(x == 1 && d == odd)) return false;
    }
    return true;
}

static uint64_t divisor(uint64_t n) {  /* n is composite and has no small factor */
    for (uint64_t c = 1;; c++) {
        uint64_t slow = 2, fast = 2, common = 1;
        while (common == 1) {
            slow = (uint64_t)(((u128)slow * slow + c) % n);
            for (int i = 0; i < 2; i++) fast = (uint64_t)(((u128)fast * fast + c) % n);
            uint64_t a = slow > fast ? slow - fast : fast - slow, b = n;
            while (a) { uint64_t rest = b % a; b = a; a = rest; }
            common = b;
        }
        if (common != n) return common;
    }
}

static int factor(uint64_t n, uint64_t *factors, int count) {
    for (size_t i = 0; i < SMALLS; i++)
        for (; n > 1 && n % SMALL[i] == 0; n /= SMALL[i]) factors[count++] = SMALL[i];
    if (n == 1) return count;
    if (!is_prime(n)) {
        uint64_t part = divisor(n);
        return factor(n / part, factors, factor(part, factors, count));
    }
    int at = count;
    for (; at > 0 && factors[at - 1] > n; at--) factors[at] = factors[at - 1];
    factors[at] = n;
    return count + 1;
}

/* ---- The module. ---- */

static void fail(const char *code, const char *message, Span named) {
    put_text("\"ok\":false,\"error\":{\"code\":\"");
    put_text(code);
    put_text("\",\"message\":\"");
    put_text(message);
    /* What stood between the quotes of a JSON string may stand between the quotes of ours. */
    if (named.at && *named.at == '"') put_span((Span){named.at + 1, named.end - 1});
    put_text("\"}");
}

static void invoke(Span input) {
    Span call[2] = {{0}}, args[1] = {{0}};
    if (input.at && *input.at == '{') walk_object(input.at, 0, 2, (const char *const[]){"op", "args"}, call);
    if (call[1].at && *call[1].at == '{') walk_object(call[1].at, 0, 1, (const char *const[]){"n"}, args);
    bool wants_factors = says(call[0], "factor"), wants_prime = says(call[0], "is_prime");
    uint64_t n;
    if (says(call[0], "echo")) {
        put_text("\"ok\":true,\"result\":");
        if (call[1].at) put_span(call[1]);
        else put_text("{}");
    } else if (!wants_factors && !wants_prime) {
        fail("unsupported_op", "primes has no op ", call[0]);
    } else if (!whole_number(args[0], &n) || (wants_factors && n == 0)) {
        fail("bad_request", "n must be a whole number, positive and below 2^64, in plain digits", (Span){0});
    } else {
        put_text("\"ok\":true,\"result\":{\"n\":");
        put_number(n);
        if (wants_prime) {
            put_text(is_prime(n) ? ",\"prime\":true}" : ",\"prime\":false}");
            return;
        }
        uint64_t factors[64];
        int count = factor(n, factors, 0);
        put_text(",\"factors\":[");
        for (int i = 0; i < count; i++) {
            if (i) put_text(",");
            put_number(factors[i]);
        }
        put_text("]}");
    }
}

static void answer(const char *line, const char *end) {
    Span request[3] = {{0}};
    const char *p = skip_space(line);
    if (p == end) return;
    p = *p == '{' ? walk_object(p, 0, 3, (const char *const[]){"requestId", "operation", "input"}, request) : NULL;
    if (!p || skip_space(p) != end) {
        fprintf(stderr, "primes: ignored a malformed line: %.80s\n", line);
        return;
    }
    put_text("{");
    if (request[0].at) {
        put_text("\"requestId\":");
        put_span(request[0]);
        put_text(",");
    }
    if (says(request[1], "invoke")) invoke(request[2]);
    else if (says(request[1], "health")) put_text("\"status\":\"ok\"");
    else if (says(request[1], "describe"))  /* the schemas stand in module.json, which the host has read */
        put_text("\"name\":\"primes\",\"version\":\"" VERSION "\",\"kind\":\"tool\","
                 "\"capabilities\":[\"fs.temp\",\"process.spawn\"],\"inputs\":{},\"outputs\":{}");
    else fail("unsupported_op", "primes has no operation ", request[1]);
    put_text("}\n");
    if (out_len >= BATCH) flush();
}

int main(int argc, char **argv) {
    if (argc == 2) {  /* started by the script above: a running program needs no name */
        unlink(argv[0]);
        rmdir(argv[1]);
    }
    size_t cap = 1 << 18, len = 0;
    char *in = grown(NULL, cap + 1);  /* and one for the NUL after a last line without a newline */
    bool dropping = false;
    for (;;) {
        if (len == MAX_LINE) {
            if (!dropping) fputs("primes: dropped a line that is too long\n", stderr);
            dropping = true;
            len = 0;
        }
        if (len == cap) in = grown(in, (cap *= 2) + 1);
        ssize_t got = read(STDIN_FILENO, in + len, cap - len);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        char *line = in, *from = in + len, *newline;  /* what was searched before is not searched again */
        len += (size_t)got;
        while ((newline = memchr(from, '\n', (size_t)(in + len - from)))) {
            *newline = '\0';
            if (!dropping) answer(line, newline);
            dropping = false;
            line = from = newline + 1;
        }
        flush();
        len -= (size_t)(line - in);
        if (line != in) memmove(in, line, len);
    }
    in[len] = '\0';
    if (!dropping) answer(in, in + len);
    flush();
    free(in);
    free(out);
    return 0;
}
