// SPDX-License-Identifier: GPL-2.0-or-later
// The deadline after which nothing of the job may run (agentd/core/lease.hpp): kept here, as agentd
// may be dead by then. The clock runs on while the machine sleeps.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {

void keep_lease(uint64_t until, int freezer, const char* word, size_t n) {
    const int copy = freezer >= 0 ? fcntl(freezer, F_DUPFD_CLOEXEC, 3) : -1;
    if (g.lease_timer < 0)
        g.lease_timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    struct itimerspec at = {};
    at.it_value.tv_sec = static_cast<time_t>(until / 1000000000);
    at.it_value.tv_nsec = static_cast<long>(until % 1000000000);
    const bool good = copy >= 0 && n > 0 && n < sizeof g.freezer_word && until > 0 &&
                      timerfd_settime(g.lease_timer, TFD_TIMER_ABSTIME, &at, nullptr) == 0;
    if (!good) {  // the one before is kept: it is earlier
        say("cannot keep a lease", errno);
        if (copy >= 0) close(copy);
        return;
    }
    if (g.freezer >= 0) close(g.freezer);
    g.freezer = copy;
    memcpy(g.freezer_word, word, n);
    g.freezer_word[n] = 0;
    g.lease_until = until;
    g.lease_told = true;  // by who has just said it
}

// Stops the job at the end of its lease, and notes that for agentd: a later deadline may be on its
// way here, which would not let the job go on. A job that a dump has frozen stands already, and its
// dump will let it go.
void on_lease_timer() {
    uint64_t times;
    if (read(g.lease_timer, &times, sizeof times) != sizeof times) return;
    char now[16] = {};
    const size_t n = strlen(g.freezer_word);
    if (pread(g.freezer, now, sizeof now - 1, 0) > 0 && strncmp(now, g.freezer_word, n) == 0)
        return;
    const int mark = create_at(g.dir, SOUK_LAPSED_NAME, 0);
    if (mark >= 0) close(mark);
    if (pwrite(g.freezer, g.freezer_word, n, 0) != static_cast<ssize_t>(n))
        return say("cannot stop the job at the end of its lease", errno);
    g.lease_stopped = g.lease_until;
}

}  // namespace souk::init
