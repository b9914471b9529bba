/* spawn_loop COUNT PROGRAM: run a tool COUNT times, one after the other, the cheapest way there is:
 * posix_spawn with three pipes, a request written, both outputs read to their end, the exit reaped.
 * Prints the seconds it took, and those of its own CPU, after a quarter as many. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char request[] =
    "{\"requestId\":\"r1\",\"tool\":\"done\",\"operation\":\"run\",\"input\":{}}\n";

static void give_up(const char *what) { perror(what); exit(1); }

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void run(char **argv, char **environment) {
    int in[2], out[2], err[2], status;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) give_up("pipe2");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    pid_t pid;
    if (posix_spawn(&pid, argv[0], &actions, NULL, argv, environment)) give_up(argv[0]);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    if (write(in[1], request, sizeof request - 1) < 0) give_up("write");
    close(in[1]);
    char said[4096];
    size_t got = 0;
    for (ssize_t n; (n = read(out[0], said, sizeof said)) > 0;) got += (size_t)n;
    while (read(err[0], said, sizeof said) > 0) continue;
    close(out[0]);
    close(err[0]);
    if (waitpid(pid, &status, 0) != pid || status != 0 || got == 0) give_up("the tool failed");
}

int main(int argc, char **argv, char **environment) {
    if (argc < 3) return 2;
    long count = atol(argv[1]);
    for (long i = 0; i < count / 4; i++) run(argv + 2, environment);
    double begin = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < count; i++) run(argv + 2, environment);
    printf("%.9f %.9f\n", now(CLOCK_MONOTONIC) - begin, now(CLOCK_PROCESS_CPUTIME_ID) - used);
    return 0;
}
