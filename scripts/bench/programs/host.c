/* host MODE COUNT WINDOW PROGRAM...: do the work of a row the cheapest way there is, without stdiod.
 *
 * ask    ask a persistent module, WINDOW requests open at once: an answer is a newline, nothing is
 *        parsed, and all requests that became possible with one read leave in one write
 * spawn  run a tool, one run after the other: posix_spawn with three pipes, a request written, both
 *        outputs read to their end, the exit reaped
 *
 * Prints the seconds that it took, and those of its own CPU, after a quarter as many to warm up. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char run_request[] =
    "{\"requestId\":\"r1\",\"tool\":\"done\",\"operation\":\"run\",\"input\":{}}\n";

static void give_up(const char *what) { perror(what); exit(1); }

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Starts a program with a pipe for each of its first `pipes` descriptors, and leaves our ends in `ours`. */
static pid_t start(char **argv, char **environment, int pipes, int *ours) {
    posix_spawn_file_actions_t actions;
    int theirs[3];
    posix_spawn_file_actions_init(&actions);
    for (int fd = 0; fd < pipes; fd++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC)) give_up("pipe2");
        theirs[fd] = ends[fd != STDIN_FILENO];
        ours[fd] = ends[fd == STDIN_FILENO];
        posix_spawn_file_actions_adddup2(&actions, theirs[fd], fd);
    }
    pid_t pid;
    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environment)) give_up(argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    for (int fd = 0; fd < pipes; fd++) close(theirs[fd]);
    return pid;
}

static void spawn(char **argv, char **environment) {
    int ours[3], status;
    pid_t pid = start(argv, environment, 3, ours);
    if (write(ours[0], run_request, sizeof run_request - 1) < 0) give_up("write");
    close(ours[0]);
    char said[4096];
    size_t got = 0;
    for (ssize_t n; (n = read(ours[1], said, sizeof said)) > 0;) got += (size_t)n;
    while (read(ours[2], said, sizeof said) > 0) continue;
    close(ours[1]);
    close(ours[2]);
    if (waitpid(pid, &status, 0) != pid || status != 0 || got == 0) give_up("the tool failed");
}

static void send_requests(int to, long requests) {
    static char batch[1 << 16];
    static long sent;
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

static void ask(const int *pipes, long count, long window) {
    static char said[1 << 16];
    long sent = window < count ? window : count, answered = 0;
    send_requests(pipes[0], sent);
    while (answered < count) {
        ssize_t n = read(pipes[1], said, sizeof said);
        if (n <= 0) give_up("read");
        long answers = 0;
        for (char *at = said; (at = memchr(at, '\n', (size_t)(said + n - at))); at++) answers++;
        answered += answers;
        long more = answers < count - sent ? answers : count - sent;
        send_requests(pipes[0], more);
        sent += more;
    }
}

int main(int argc, char **argv, char **environment) {
    if (argc < 5) return 2;
    int asks = !strcmp(argv[1], "ask"), pipes[2];
    long count = atol(argv[2]), window = atol(argv[3]);
    if (window > 256) return 2; /* of a batch */
    if (asks) start(argv + 4, environment, 2, pipes);
    double begin = 0, used = 0;
    for (int warm = 1; warm >= 0; warm--) {
        long times = warm ? count / 4 : count;
        begin = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
        if (asks) ask(pipes, times, window);
        else for (long i = 0; i < times; i++) spawn(argv + 4, environment);
    }
    printf("%.9f %.9f\n", now(CLOCK_MONOTONIC) - begin, now(CLOCK_PROCESS_CPUTIME_ID) - used);
    return 0;
}
