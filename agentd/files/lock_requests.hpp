// SPDX-License-Identifier: GPL-2.0-or-later
// LockRequests: requests about locks on their way through the client of a mount. The home has the
// locks (locks.hpp); what is done here:
// - Whoever gets a lock sees what others wrote before: the answer waits until the kernel has
//   forgotten what it has read of that file (page_notices.hpp).
// - A signal to who waits for a lock goes to the home, which then answers: the lock was granted, or
//   EINTR.
// - The client notes which files this mount may have locked. A close of any other asks nothing, and
//   neither does CRIU's question for locks of it (kernel/sys/store/served_locks.h).
// - Waiting requests keep their slots. So only some may wait, and a further one is refused
//   (ENOLCK): all others must get through, or nobody could let go.
// Owned by the client.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <set>

#include "agentd/files/cache.hpp"
#include "agentd/files/page_notices.hpp"
#include "agentd/files/slots.hpp"
#include "agentd/files/upstream.hpp"

namespace souk::files {

class LockRequests {
  public:
    static constexpr uint32_t waits_max = 40;
    static constexpr size_t noted_max = 65'536;
    using ToKernel = std::function<Status(const void* bytes, size_t size)>;

    // `knows_all`: no client of this mount was there before.
    LockRequests(Slots& requests, Upstream& upstream, Cache& cache, int fuse, bool knows_all,
                 ToKernel to_kernel)
        : slots_(requests),
          upstream_(upstream),
          cache_(cache),
          to_kernel_(std::move(to_kernel)),
          pages_(fuse),
          knows_all_(knows_all) {}

    // A request of which the home needs to know nothing is answered. The slot is free then.
    Result<bool> settles(uint32_t n);
    bool may_hold(uint64_t node) const { return !knows_all_ || noted_.contains(node); }
    // A signal came to who waits for the lock: the home is told once.
    void interrupt(uint32_t n);
    // The home's answer to the kernel's request; `changed`: with it comes that others may have
    // written to the file. True: it is given when the pages are forgotten.
    bool holds(uint32_t n, ByteView answer, bool changed);
    int fd() const { return pages_.fd(); }
    // Gives the answers that have waited for that. `undo` gives back what nobody waits for.
    Status give(const std::function<void(ByteView request)>& undo);

  private:
    struct Granted {
        uint32_t n;
        uint64_t seq;
        Bytes answer;
    };
    bool is_full() const;
    Status answer(uint32_t n, int error);
    Status answer_question(uint32_t n, const fuse_lk_in& in, bool yes);
    void note(uint64_t node);

    Slots& slots_;
    Upstream& upstream_;
    Cache& cache_;
    ToKernel to_kernel_;
    PageNotices pages_;
    std::deque<Granted> granted_;
    std::set<uint64_t> noted_;  // nodes
    bool knows_all_;
};

// Tells whether the request is about a lock.
bool is_about_lock(uint32_t opcode);
bool has_succeeded(ByteView answer);
// Makes the request that lets a lock go that was granted too late. Empty: it was none.
Bytes letting_go_request(ByteView request);

}  // namespace souk::files
