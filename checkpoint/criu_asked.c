// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into each CRIU of a job: what may be asked of it over its socket is what
// checkpoint/criu.cpp asks, and nothing else. CRIU is root and does more than that: it runs
// programs, loads plugins, writes where it is told to. Who asks is agentd, which reads what comes
// over the network, and may have been taken over.
//
// A request is a criu_req, and its options are a criu_opts (images/rpc.proto), in the wire format
// of protocol buffers. Each field that may stand there is in a list with what it may say; CRIU gets
// a request that has another one as an error of its socket, and ends.
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

enum { asks_fd = 3 };  // checkpoint/launch.hpp, as all numbers and names below

bool take_number(struct bytes* b, uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        const unsigned char byte = *b->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

bool next_member(struct bytes* b, struct member* m) {
    uint64_t tag;
    m->tag = b->at;
    if (!take_number(b, &tag) || !take_number(b, &m->value)) return false;
    m->number = tag >> 3;
    m->has_bytes = (tag & 7) == 2;
    m->inner = (struct bytes){b->at, b->at};
    if (!m->has_bytes) return (tag & 7) == 0;
    if (m->value > (uint64_t)(b->end - b->at)) return false;
    m->inner.end = b->at += m->value;
    return true;
}

// A field that may be there. `text`: what its bytes are, or begin with if it ends in *; NULL: it is
// a number between `least` and `most`; a message if `within` is set.
struct field {
    uint32_t tag;
    const char* text;
    uint64_t least, most;
    const struct field* within;
};

static bool is_text(const struct bytes* b, const char* text) {
    const size_t have = (size_t)(b->end - b->at), wanted = strlen(text);
    if (memchr(b->at, 0, have) != NULL) return false;
    if (wanted > 0 && text[wanted - 1] == '*')
        return have >= wanted - 1 && memcmp(b->at, text, wanted - 1) == 0;
    return have == wanted && memcmp(b->at, text, wanted) == 0;
}

static bool fits(struct bytes b, const struct field* list);

static bool field_fits(const struct member* m, const struct field* list) {
    // Several lines may be for one field.
    for (const struct field* f = list; f->tag != 0; ++f) {
        if (f->tag != m->number) continue;
        const bool is_number = f->text == NULL && f->within == NULL;
        if (is_number == m->has_bytes) continue;
        if (is_number && m->value >= f->least && m->value <= f->most) return true;
        if (f->text != NULL && is_text(&m->inner, f->text)) return true;
        if (f->within != NULL && fits(m->inner, f->within)) return true;
    }
    return false;
}

static bool fits(struct bytes b, const struct field* list) {
    struct member m;
    while (b.at < b.end)
        if (!next_member(&b, &m) || !field_fits(&m, list)) return false;
    return true;
}

#define FLAG(tag) \
    { tag, NULL, 0, 1, NULL }
#define NUMBER(tag, least, most) \
    { tag, NULL, least, most, NULL }
#define TEXT(tag, text) \
    { tag, text, 0, 0, NULL }
#define WITHIN(tag, list) \
    { tag, NULL, 0, 0, list }
#define END \
    { 0, NULL, 0, 0, NULL }

static const struct field end_of_job[] = {TEXT(1, "pipe:[*"), TEXT(1, "tty[*"), NUMBER(2, 201, 208),
                                          END};

#define BOTH                                                                                   \
    NUMBER(1, UINT64_MAX, UINT64_MAX)                                                          \
    /* images_dir_fd: none, the next one counts */, TEXT(68, "/proc/self/fd/200"),             \
        NUMBER(9, 0, 4) /* log_level */, FLAG(12) /* notify */, FLAG(8) /* file_locks */,      \
        FLAG(18) /* link_remap */, NUMBER(35, 0, UINT32_MAX) /* ghost_limit */,                \
        NUMBER(34, 0, 0) /* cgroups: left alone */, NUMBER(64, 3, 3) /* network_lock: none */, \
        FLAG(46) /* tcp_skip_in_flight */, FLAG(5) /* tcp_established */,                      \
        FLAG(52) /* tcp_close */, FLAG(48) /* lazy_pages */

static const struct field of_dump[] = {BOTH,
                                       NUMBER(2, 2, INT32_MAX) /* pid */,
                                       TEXT(10, "dump.log"),
                                       TEXT(51, "/run/souk-lazy.conf"),
                                       TEXT(37, "tty[*") /* external: its terminal */,
                                       END};
static const struct field of_restore[] = {BOTH, TEXT(10, "restore.log"),
                                          TEXT(51, "/run/souk-served.conf"),
                                          WITHIN(27, end_of_job) /* inherit_fd */, END};
static const struct field features[] = {FLAG(1), FLAG(2), FLAG(3), END};

#define NOTIFY_AND_ASK NUMBER(1, 6, 6), NUMBER(1, 9, 10), FLAG(3), FLAG(4), WITHIN(5, features)
static const struct field dumps[] = {NUMBER(1, 1, 1), WITHIN(2, of_dump), NOTIFY_AND_ASK, END};
static const struct field restores[] = {NUMBER(1, 2, 2), WITHIN(2, of_restore), NOTIFY_AND_ASK,
                                        END};

static bool may_be_asked(const void* request, size_t size) {
    const struct bytes all = {request, (const unsigned char*)request + size};
    if (getenv("SOUK_DUMP") != NULL) return fits(all, dumps);
    return getenv("SOUK_AS") == NULL || fits(all, restores);
}

// A word of CRIU's to agentd is a criu_resp: a notify, success, and what it tells.
static bool is_word(const void* word, size_t n, const char* name) {
    static const char begins[] = {8, 6, 16, 1};
    return n < 64 && n > sizeof begins && memcmp(word, begins, sizeof begins) == 0 &&
           memmem(word, n, name, strlen(name)) != NULL;
}

bool before_word(const void* word, size_t n) {
    // agentd opens the network when it hears that, and then nothing may fail any more.
    if (getenv("SOUK_DUMP") == NULL) return !is_word(word, n, "pre-resume") || before_all_go();
    // Every process stands, and agentd looks at none of their memory yet.
    if (is_word(word, n, "query-ext-files")) shorten_waits();
    if (!is_word(word, n, "post-dump")) return true;
    keep_files();
    return note_locks();
}

// The answer that a dump waits for at its end: its processes are to die. A notify's answer of any
// other moment says nothing of it.
static bool ends_processes(const void* request, size_t size) {
    struct bytes all = {request, (const unsigned char*)request + size};
    uint64_t tag, value, type = 0, success = 0;
    while (take_number(&all, &tag) && (tag & 7) == 0 && take_number(&all, &value)) {
        if (tag >> 3 == 1) type = value;
        if (tag >> 3 == 3) success = value;
    }
    return type == 6 && success == 1;
}

ssize_t recv(int socket, void* buffer, size_t size, int flags) {
    const ssize_t got = syscall(SYS_recvfrom, socket, buffer, size, flags, NULL, NULL);
    if (got <= 0 || buffer == NULL || (flags & MSG_PEEK) != 0) return got;
    if (socket != asks_fd) {  // a copy of it, for answers
        if (ends_processes(buffer, (size_t)got)) {
            end_guard();
            before_end();
        }
        return got;
    }
    if ((size_t)got <= size && may_be_asked(buffer, (size_t)got)) return got;
    errno = EPERM;
    return -1;
}

// A CRIU that was compiled with _FORTIFY_SOURCE calls this.
ssize_t __recv_chk(int socket, void* buffer, size_t size, size_t room, int flags) {
    if (size > room) abort();
    return recv(socket, buffer, size, flags);
}
