// SPDX-License-Identifier: GPL-2.0-or-later
// job BALLAST_MB PIDFILE PROGRAM ARGS...: a zdtm test as a job. Fills so much memory, starts the
// test, which leaves a daemon and writes its pid, says "ready", and waits for a line on stdin. Then
// it looks at its memory, sends SIGTERM to the daemon, and ends as that does. Like PID 1 under
// plain CRIU it takes in whatever process lost its parent.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { no_start = 90, damaged = 91, broken = 92 };

static pid_t daemon_pid;
static int daemon_status = -1;

static void on_child(int signal_number) { (void)signal_number; }

static int fail(const char *what) {
    printf("failed: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    return broken;
}

static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == daemon_pid) daemon_status = status;
}

static uint64_t word(size_t i) { return (i + 1) * 0x9e3779b97f4a7c15u; }

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const size_t words = (strtoul(argv[1], NULL, 10) << 20) / sizeof(uint64_t);
    uint64_t *ballast = NULL;
    if (words) {
        ballast = mmap(NULL, words * sizeof *ballast, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (ballast == MAP_FAILED) return fail("mmap");
        for (size_t i = 0; i < words; i++) ballast[i] = word(i);
    }
    const pid_t starter = fork();
    if (starter < 0) return fail("fork");
    if (starter == 0) {
        execv(argv[3], argv + 3);
        _exit(no_start);
    }
    int status;
    if (waitpid(starter, &status, 0) != starter) return fail("waitpid");
    FILE *file = status == 0 ? fopen(argv[2], "r") : NULL;
    if (!file || fscanf(file, "%d", &daemon_pid) != 1) return no_start;
    fclose(file);

    sigset_t blocked, open;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    if (sigprocmask(SIG_BLOCK, &blocked, &open) != 0) return fail("sigprocmask");
    struct sigaction action = {.sa_handler = on_child};
    if (sigaction(SIGCHLD, &action, NULL) != 0) return fail("sigaction");
    puts("ready");
    fflush(stdout);
    struct pollfd in = {.fd = 0, .events = POLLIN};
    for (int told = 0; daemon_status == -1;) {
        reap();
        if (daemon_status != -1) break;
        if (ppoll(&in, told ? 0 : 1, NULL, &open) <= 0) continue;
        for (size_t i = 0; i < words; i++)
            if (ballast[i] != word(i))
                return puts("failed: memory is damaged"), fflush(stdout), damaged;
        told = 1;
        puts("told");
        fflush(stdout);
        if (kill(daemon_pid, SIGTERM) != 0) return fail("kill");
    }
    if (WIFEXITED(daemon_status)) return WEXITSTATUS(daemon_status);
    printf("failed: the test died of signal %d\n", WTERMSIG(daemon_status));
    fflush(stdout);
    return 128 + WTERMSIG(daemon_status);
}
