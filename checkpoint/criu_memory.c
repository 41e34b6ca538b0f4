// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores lazily: no huge page is made while memory is put in place
// that the image has.
//
// An image has the pages that processes share, and the rest comes through userfaultfd
// (checkpoint/shared_pages). The first page that is written to a mapping would fill a whole huge
// page with zeros, of which those that are still to come are never missed: the job would find zeros
// in them. CRIU thinks of that only if the image has a parent (criu/mem.c, maybe_disable_thp). Each
// process that it makes inherits this setting, and gets its own back when its mappings are
// registered with userfaultfd (criu/pie/restorer.c).
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

// CRIU's first step of a lazy restore, before it makes any process (criu/uffd.c,
// prepare_lazy_pages_socket).
static const char lazy_pages[] = "lazy-pages.socket";

int connect(int fd, const struct sockaddr* address, socklen_t length) {
    const struct sockaddr_un* to = (const struct sockaddr_un*)address;
    const size_t name = sizeof lazy_pages - 1;
    if (length >= sizeof to->sun_family + name && to->sun_family == AF_UNIX &&
        memcmp(to->sun_path, lazy_pages, name) == 0 && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
        return -1;
    const bool is_crius = to->sun_family == AF_UNIX && length > sizeof to->sun_family &&
                          strncmp(to->sun_path, lazy_pages, name) == 0;
    int other;
    if (is_crius) return (int)syscall(SYS_connect, fd, address, length);
    if (connect_for_trial(fd, address, length, &other)) return other;
    return passed_over(connect_plainly(fd, address, length));
}
