// SPDX-License-Identifier: GPL-2.0-or-later
// A link with a delay, for kernels without netem: takes connections to a socket and carries each,
// both ways, to another. Each byte arrives so many microseconds after it was sent; as much as was
// sent within that time is under way. With a rate, no more bytes are taken in a second than that.
//
//   delay_link LISTEN TARGET MICROSECONDS [MEGABYTES_A_SECOND]
//
// LISTEN, TARGET: each a path of a unix socket, or a port of this host.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { piece = 256 * 1024, pieces = 256 };

struct way {
    int from, to;
    int64_t delay_ns;
    double ns_of_byte;  // 0: as fast as it goes
    pthread_mutex_t lock;
    pthread_cond_t news;
    unsigned head, count;  // of the ring
    int over;
    struct {
        int64_t due_ns;
        size_t size;
        char* bytes;
    } ring[pieces];
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_until(int64_t ns) {
    const struct timespec until = {ns / 1000000000, ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

static void* sender(void* argument) {
    struct way* w = argument;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (w->count == 0 && !w->over) pthread_cond_wait(&w->news, &w->lock);
        if (w->count == 0) break;
        const unsigned at = w->head % pieces;
        pthread_mutex_unlock(&w->lock);
        sleep_until(w->ring[at].due_ns);
        for (size_t sent = 0; sent < w->ring[at].size;) {
            const ssize_t n =
                send(w->to, w->ring[at].bytes + sent, w->ring[at].size - sent, MSG_NOSIGNAL);
            if (n <= 0) break;
            sent += (size_t)n;
        }
        free(w->ring[at].bytes);
        pthread_mutex_lock(&w->lock);
        ++w->head;
        --w->count;
        pthread_cond_broadcast(&w->news);
        pthread_mutex_unlock(&w->lock);
    }
    pthread_mutex_unlock(&w->lock);
    shutdown(w->to, SHUT_WR);
    return NULL;
}

static void* receiver(void* argument) {
    struct way* w = argument;
    static _Thread_local char buffer[piece];
    int64_t free_ns = 0;  // when what was taken so far has left
    for (;;) {
        const ssize_t n = recv(w->from, buffer, sizeof buffer, 0);
        if (n > 0 && w->ns_of_byte > 0) {
            const int64_t begins = free_ns > now_ns() ? free_ns : now_ns();
            free_ns = begins + (int64_t)(w->ns_of_byte * (double)n);
            sleep_until(free_ns);
        }
        pthread_mutex_lock(&w->lock);
        if (n <= 0) break;
        while (w->count == pieces) pthread_cond_wait(&w->news, &w->lock);
        const unsigned at = (w->head + w->count) % pieces;
        w->ring[at].due_ns = now_ns() + w->delay_ns;
        w->ring[at].size = (size_t)n;
        w->ring[at].bytes = malloc((size_t)n);
        if (!w->ring[at].bytes) abort();
        memcpy(w->ring[at].bytes, buffer, (size_t)n);
        ++w->count;
        pthread_cond_broadcast(&w->news);
        pthread_mutex_unlock(&w->lock);
    }
    w->over = 1;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void carry(int from, int to, int64_t delay_ns, double ns_of_byte) {
    struct way* w = calloc(1, sizeof *w);
    pthread_t thread;
    if (!w) abort();
    w->from = from;
    w->to = to;
    w->delay_ns = delay_ns;
    w->ns_of_byte = ns_of_byte;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->news, NULL);
    if (pthread_create(&thread, NULL, sender, w) != 0 ||
        pthread_create(&thread, NULL, receiver, w) != 0)
        abort();
}

static int reach(const char* target) {
    if (target[0] == '/') {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        strncpy(address.sun_path, target, sizeof address.sun_path - 1);
        return connect(fd, (struct sockaddr*)&address, sizeof address) == 0 ? fd : -1;
    }
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(target)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connect(fd, (struct sockaddr*)&address, sizeof address) == 0 ? fd : -1;
}

static int door(const char* name) {
    const int on = 1;
    if (name[0] == '/') {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        strncpy(address.sun_path, name, sizeof address.sun_path - 1);
        unlink(name);
        if (bind(fd, (struct sockaddr*)&address, sizeof address) != 0) return -1;
        return listen(fd, 8) == 0 ? fd : -1;
    }
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(name)),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr*)&address, sizeof address) != 0) return -1;
    return listen(fd, 8) == 0 ? fd : -1;
}

int main(int argc, char** argv) {
    if (argc != 4 && argc != 5)
        return fprintf(stderr, "delay_link LISTEN TARGET MICROSECONDS [MEGABYTES_A_SECOND]\n"), 2;
    const double ns_of_byte = argc == 5 ? 1e9 / (atof(argv[4]) * (1 << 20)) : 0;
    prctl(PR_SET_TIMERSLACK, 1);
    prctl(PR_SET_PDEATHSIG, 9);
    const int listener = door(argv[1]);
    if (listener < 0) return perror("listen"), 1;
    puts("ready");
    fflush(stdout);
    for (;;) {
        const int near = accept(listener, NULL, NULL), on = 1;
        setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // a unix socket has none
        const int far = near < 0 ? -1 : reach(argv[2]);
        if (far < 0) {
            if (near >= 0) close(near);
            continue;
        }
        carry(near, far, atoll(argv[3]) * 1000, ns_of_byte);
        carry(far, near, atoll(argv[3]) * 1000, ns_of_byte);
    }
}
