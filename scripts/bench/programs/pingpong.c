/* pingpong COUNT WINDOW PROGRAM: ask a persistent module COUNT times, WINDOW requests open at once,
 * the cheapest way there is: an answer is a newline, nothing is parsed, and all requests that became
 * possible with one read leave in one write. Prints the seconds it took, and those of its own CPU,
 * once a quarter as many were answered. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void give_up(const char *what) { perror(what); exit(1); }

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long sent;

static void ask(int to, long requests) {
    static char batch[1 << 16];
    size_t size = 0;
    for (long i = 0; i < requests; i++)
        size += (size_t)sprintf(batch + size,
            "{\"requestId\":\"r%ld\",\"tool\":\"primes\",\"operation\":\"invoke\","
            "\"input\":{\"op\":\"echo\",\"args\":{\"n\":1}}}\n", ++sent);
    for (size_t at = 0; at < size;) {
        ssize_t n = write(to, batch + at, size - at);
        if (n < 0) give_up("write");
        at += (size_t)n;
    }
}

int main(int argc, char **argv, char **environment) {
    if (argc < 4) return 2;
    long count = atol(argv[1]), window = atol(argv[2]), answered = 0;
    if (window > 256) return 2;
    long warm = count / 4;
    count += warm;
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) give_up("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    pid_t pid;
    if (posix_spawn(&pid, argv[3], &actions, NULL, argv + 3, environment)) give_up(argv[3]);
    close(in[0]);
    close(out[1]);
    static char said[1 << 16];
    double begin = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
    ask(in[1], window < count ? window : count);
    while (answered < count) {
        ssize_t n = read(out[0], said, sizeof said);
        if (n <= 0) give_up("read");
        long answers = 0;
        for (char *at = said; (at = memchr(at, '\n', (size_t)(said + n - at))); at++) answers++;
        if (answered < warm && answered + answers >= warm) {
            count += answered + answers - warm;
            begin = now(CLOCK_MONOTONIC);
            used = now(CLOCK_PROCESS_CPUTIME_ID);
        }
        answered += answers;
        ask(in[1], answers < count - sent ? answers : count - sent);
    }
    double took = now(CLOCK_MONOTONIC) - begin;
    used = now(CLOCK_PROCESS_CPUTIME_ID) - used;
    close(in[1]);
    waitpid(pid, NULL, 0);
    printf("%.9f %.9f\n", took, used);
    return 0;
}
