// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ask.hpp"

#include <unistd.h>

#include <cerrno>

#include "tools/common/link.hpp"

namespace souk::tools {

Result<std::string> ask(const std::string& socket, const std::string& verb, const std::vector<std::string>& args) {
    constexpr Nanos answer_max = Nanos::from_s(30);
    TRY_ASSIGN(Link link, Link::open(socket));
    link.queue(wire::CtlRequest{1, 0, verb, args});
    TRY_ASSIGN(wire::CtlReply reply, link.expect<wire::CtlReply>(answer_max));
    if (!reply.ok) return fail(reply.error);
    return std::move(reply.json);
}

Status print(const std::string& text) {
    const std::string all = text + "\n";
    for (size_t done = 0; done < all.size();) {
        const ssize_t n = write(STDOUT_FILENO, all.data() + done, all.size() - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("stdout", errno);
        done += static_cast<size_t>(n);
    }
    return {};
}

}  // namespace souk::tools
