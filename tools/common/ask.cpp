// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ask.hpp"

#include <unistd.h>

#include <cerrno>

#include "tools/common/link.hpp"

namespace souk::tools {

Result<Answer> ask(const std::string& socket, const std::string& verb, const std::vector<std::string>& args) {
    constexpr Nanos part_max = Nanos::from_s(30);
    constexpr size_t parts_max = 4096;
    TRY_ASSIGN(Link link, Link::open(socket));
    Answer parts;
    wire::CtlRequest request{1, 0, verb, args, {}};
    do {
        if (parts.size() == parts_max) return fail("the daemon's answer has no end");
        link.queue(request);
        TRY_ASSIGN(wire::CtlReply reply, link.expect<wire::CtlReply>(part_max));
        if (!reply.ok) return fail(reply.error);
        // An answer that is not there yet is asked for again.
        if (!reply.json.empty() || reply.next.empty()) parts.push_back(std::move(reply.json));
        request.after = std::move(reply.next);
        ++request.request;
    } while (!request.after.empty());
    return parts;
}

Result<std::string> joined(Answer parts) {
    std::string all = std::move(parts.front());
    for (size_t i = 1; i < parts.size(); ++i) {
        if (!all.ends_with(']') || !parts[i].starts_with('[')) return fail("the daemon's answer is not a JSON list");
        all.pop_back();
        const bool both = all != "[" && parts[i] != "[]";
        all.append(both ? "," : "").append(parts[i], 1);
        parts[i] = {};
    }
    return all;
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
