// SPDX-License-Identifier: GPL-2.0-or-later
// A process for each call that waits for a span of time, or for a socket that has a time limit, and
// no handler of any signal. Each says what its call said, and after how many milliseconds. The
// first one says so every second.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int span_s;

// It stays as it is, whatever becomes of the calls that point to it.
static struct timespec its_span;

static const struct timespec* span(void) { return &its_span; }

static long us_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int empty_pipe(void) {
    int p[2];
    return pipe(p) == 0 ? p[0] : -1;
}

static int empty_epoll(void) {
    struct epoll_event e = {EPOLLIN, {0}};
    const int epoll = epoll_create1(0);
    return epoll_ctl(epoll, EPOLL_CTL_ADD, empty_pipe(), &e) == 0 ? epoll : -1;
}

static int limited_socket(void) {
    int p[2];
    const struct timeval t = {span_s, 0};
    socketpair(AF_UNIX, SOCK_STREAM, 0, p);
    return setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0 ? p[0] : -1;
}

static long by_usleep(void) { return usleep(span_s * 1000000U); }
static long by_nanosleep(void) { return nanosleep(span(), NULL); }
static long by_nanosleep_with_rest(void) {
    struct timespec rest;
    return nanosleep(span(), &rest);
}
static long by_clock_nanosleep(void) {
    return clock_nanosleep(CLOCK_MONOTONIC, 0, span(), NULL) == 0 ? 0 : -1;
}
static long by_poll(void) { return poll(NULL, 0, span_s * 1000); }
static long by_epoll(void) {
    struct epoll_event e;
    return epoll_wait(empty_epoll(), &e, 1, span_s * 1000);
}
static long by_epoll_pwait2(void) {
    struct epoll_event e;
    return syscall(SYS_epoll_pwait2, empty_epoll(), &e, 1, span(), NULL, 0);
}
static long by_futex(void) {
    static int word;
    return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, span(), NULL, 0);
}
static void* a_futex(void* is) {
    return (void*)syscall(SYS_futex, is, FUTEX_WAIT_PRIVATE, 0, span(), NULL, 0);
}
// More threads than one, whose spans all stand in the same page of the process.
static long by_futex_of_threads(void) {
    static int words[20];
    pthread_t all[20];
    void* says = NULL;
    for (int i = 0; i < 20; ++i) pthread_create(&all[i], NULL, a_futex, &words[i]);
    for (int i = 0; i < 20; ++i) {
        pthread_join(all[i], &says);
        if ((long)says != -1) return 0;
    }
    errno = ETIMEDOUT;
    return -1;
}
static long by_semtimedop(void) {
    struct sembuf b = {0, -1, 0};
    return semtimedop(semget(IPC_PRIVATE, 1, 0600), &b, 1, span());
}
static long by_sigtimedwait(void) {
    sigset_t s;
    sigemptyset(&s);
    sigaddset(&s, SIGUSR1);
    sigprocmask(SIG_BLOCK, &s, NULL);
    return sigtimedwait(&s, NULL, span());
}
static long by_recv(void) {
    char c;
    return recv(limited_socket(), &c, 1, 0);
}
static long by_read(void) {
    char c;
    return read(limited_socket(), &c, 1);
}
static long by_accept(void) {
    const struct timeval t = {span_s, 0};
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(s, 1) != 0 || setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0) return 0;
    return accept(s, NULL, NULL);
}

#define BY(name) \
    { #name, by_##name }
static const struct {
    const char* name;
    long (*call)(void);
} calls[] = {BY(usleep),
             BY(nanosleep),
             BY(nanosleep_with_rest),
             BY(clock_nanosleep),
             BY(poll),
             BY(epoll),
             BY(epoll_pwait2),
             BY(futex),
             BY(futex_of_threads),
             BY(semtimedop),
             BY(sigtimedwait),
             BY(recv),
             BY(read),
             BY(accept)};

int main(int argc, char** argv) {
    span_s = argc > 1 ? atoi(argv[1]) : 9;
    its_span.tv_sec = span_s;
    const long begin = us_now();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
        if (fork() != 0) continue;
        char line[128];
        errno = 0;
        long says = calls[i].call();
        if (its_span.tv_sec != span_s || its_span.tv_nsec != 0) says = -(errno = EBADMSG);
        const int n = snprintf(line, sizeof line, "%s %s %ld\n", calls[i].name,
                               says < 0 ? strerrorname_np(errno) : "0", (us_now() - begin) / 1000);
        return write(1, line, (size_t)n) == n ? 0 : 1;
    }
    for (int second = 1; second < span_s; ++second) {
        while (us_now() - begin < second * 1000000L) usleep(20000);
        dprintf(1, "second %d\n", second);
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}
