// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/content_store.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>

#include "kernel/sys/net/descriptors.hpp"

namespace souk {
namespace {
constexpr Nanos start_pause = Nanos::from_s(1);
}  // namespace

Status ContentStore::start() {
    if (::mkdir(options_.directory.c_str(), 0700) != 0 && errno != EEXIST)
        return fail_errno("make " + options_.directory, errno);
    TRY_ASSIGN(const Fd directory,
               open_at(AT_FDCWD, options_.directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    Fd ours(pair[0]);
    const Fd theirs(pair[1]);
    TRY_ASSIGN(process_, options_.start({"store", std::to_string(options_.bytes_max)},
                                        {directory.get(), theirs.get()}, false));
    control_ = std::move(ours);
    TRY_ASSIGN(watch_, loop_.watch(control_.get(), POLLIN, [this](short) { ended(); }));
    return {};
}

// It says nothing; so that is its end.
void ContentStore::ended() {
    watch_.close();
    control_.reset();
    process_ = Pidfd();
    retry_ = loop_.after(start_pause, [this] { again_(); });
}

Fd ContentStore::socket() {
    if (options_.bytes_max == 0 || retry_.waiting()) return Fd();
    int pair[2];
    Status done;
    if (!control_) done = start();
    if (done && ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        Fd ours(pair[0]);
        const Fd theirs(pair[1]);
        const int sent = theirs.get();
        const auto given = send_descriptors(control_.get(), "c", {&sent, 1});
        if (given && *given) return ours;
        done = given ? fail("it takes no more clients") : Status(tl::unexpected(given.error()));
    }
    if (!done)
        log_.limited("content store", Loop::now(), Level::warning,
                     "contents of programs are not kept", {{"WHY", done.error()}});
    return Fd();
}

}  // namespace souk
