// SPDX-License-Identifier: GPL-2.0-or-later
// Client: what its kernel is offered, and how it gets a stream.
#include <linux/fuse.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agentd/files/client.hpp"
#include "kernel/sys/net/descriptors.hpp"

namespace souk::files {
namespace {
constexpr uint32_t older_minor = 28;  // FUSE_MAX_PAGES
}  // namespace

Result<Bytes> answer_init(ByteView request, bool locks) {
    fuse_in_header head{};
    fuse_init_in in{};
    if (request.size() < sizeof head + offsetof(fuse_init_in, flags2))
        return fail("this kernel's FUSE is too old");
    std::memcpy(&head, request.data(), sizeof head);
    std::memcpy(&in, request.data() + sizeof head,
                std::min(sizeof in, request.size() - sizeof head));
    if (in.major != FUSE_KERNEL_VERSION || in.minor < older_minor)
        return fail("this kernel's FUSE is of version " + std::to_string(in.major) + "." +
                    std::to_string(in.minor) + ", and 7." + std::to_string(older_minor) +
                    " is needed");
    struct {
        fuse_out_header head;
        fuse_init_out init;
    } answer{};
    // Writes go through to the home (no FUSE_WRITEBACK_CACHE): what is written there is there, and
    // a full disk is told to who writes. A umask counts there, or does not (umask.hpp).
    const uint32_t wanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
                            FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
                            FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
                            FUSE_CACHE_SYMLINKS | FUSE_HANDLE_KILLPRIV_V2 | FUSE_DONT_MASK |
                            (locks ? FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS : 0U);
    answer.init.major = FUSE_KERNEL_VERSION;
    answer.init.minor = std::min<uint32_t>(in.minor, FUSE_KERNEL_MINOR_VERSION);
    answer.init.max_readahead = UINT32_MAX;  // as the mount is set (read_ahead.hpp)
    answer.init.flags = in.flags & wanted;
    answer.init.max_background = slots - slots / 4;
    answer.init.congestion_threshold = slots / 2;
    answer.init.max_write = data_bytes_max;
    answer.init.time_gran = 1;
    answer.init.max_pages = data_bytes_max / 4096;
    answer.head.len = sizeof answer;
    answer.head.unique = head.unique;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&answer);
    return Bytes(bytes, bytes + sizeof answer);
}

namespace {

Status give(int control, const char* word, int descriptor) {
    TRY_ASSIGN(const bool sent, send_descriptors(control, word, {&descriptor, 1}));
    if (!sent) return fail_errno("give the client of files a stream", EAGAIN);
    return {};
}

}  // namespace

Status give_stream(int control, int stream) { return give(control, "s", stream); }

Status give_store(int control, int store) { return give(control, "c", store); }

Status ask_home(int control, int who) { return give(control, "b", who); }

Status give_expected(int control, int list, bool opens) {
    return give(control, opens ? "o" : "n", list);
}

}  // namespace souk::files
