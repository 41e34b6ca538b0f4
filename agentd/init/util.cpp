// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {

bool queue_open(Queue* q, size_t cap, uint64_t base) {
    void* p = mmap(nullptr, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    *q = Queue{static_cast<char*>(p), cap, 0, 0, base};
    return true;
}

bool queue_grow(Queue* q, size_t extra) {
    Queue bigger;
    if (!queue_open(&bigger, q->len + extra > q->cap ? q->len + extra : q->cap, q->base))
        return false;
    const uint64_t base = q->base;
    for (size_t n; q->len > 0; queue_drop(q, n)) {
        const char* bytes = queue_at(q, q->base, &n);
        queue_put(&bigger, bytes, n);
    }
    munmap(q->data, q->cap);
    *q = bigger;
    q->base = base;
    return true;
}

void queue_put(Queue* q, const char* bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        const size_t at = (q->head + q->len) % q->cap;
        size_t piece = q->cap - at;
        if (piece > n - done) piece = n - done;
        memcpy(q->data + at, bytes + done, piece);
        q->len += piece;
        done += piece;
    }
}

void queue_drop(Queue* q, size_t n) {
    q->head = (q->head + n) % q->cap;
    q->len -= n;
    q->base += n;
    if (q->len == 0) q->head = 0;  // touch no more pages than needed
}

const char* queue_at(const Queue* q, uint64_t from, size_t* n) {
    const size_t skip = static_cast<size_t>(from - q->base);
    const size_t at = (q->head + skip) % q->cap;
    const size_t left = q->len - skip;
    *n = q->cap - at < left ? q->cap - at : left;
    return q->data + at;
}

void say(const char* what, int code) {
    const int fd = create_at(g.dir, SOUK_LOG_NAME, O_APPEND);
    if (fd < 0) return;
    dprintf(fd, "%s%s%s\n", what, code ? ": " : "", code ? strerror(code) : "");
    close(fd);
}

int create_at(int dir, const char* name, int more) {
    return openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | more, 0600);
}

bool write_all(int fd, const void* data, size_t n) {
    for (auto* p = static_cast<const char*>(data); n > 0;) {
        const ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done;
        n -= static_cast<size_t>(done);
    }
    return true;
}

bool read_all(int fd, void* data, size_t n) {
    for (auto* p = static_cast<char*>(data); n > 0;) {
        const ssize_t done = read(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            if (done == 0) errno = EIO;
            return false;
        }
        p += done;
        n -= static_cast<size_t>(done);
    }
    return true;
}

long read_number(const char* path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    char text[32] = {};
    const ssize_t n = read(fd, text, sizeof text - 1);
    const int code = errno;
    close(fd);
    return n < 0 ? -code : strtol(text, nullptr, 10);
}

int write_number(const char* path, long value) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    char text[32];
    const int n = snprintf(text, sizeof text, "%ld", value);
    const int code = write(fd, text, static_cast<size_t>(n)) == n ? 0 : errno;
    close(fd);
    return code;
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace souk::init
