// SPDX-License-Identifier: GPL-2.0-or-later
// AheadWrites: the writes, and changes of attributes (made_files.hpp), that a client answers to its
// kernel before the home has them (write_behind.hpp decides which), and what waits for them:
// closes, and who asks whether all is at home. A write that finds no room is on its way like all
// others, and is answered when one before it is at home: who writes does not stand while all that
// is on its way arrives. Owned by the client.
#pragma once

#include <linux/fuse.h>

#include <functional>
#include <vector>

#include "agentd/files/cache.hpp"
#include "agentd/files/made_files.hpp"
#include "agentd/files/write_behind.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {

class AheadWrites {
  public:
    using ToKernel = std::function<Status(const void* bytes, size_t size)>;
    // `refused`: the home has refused a write to that node, of which its kernel knows already.
    // `locked`: a process of this mount may hold a lock of that node, which a close lets go.
    AheadWrites(Slots& requests, Cache& cache, ToKernel to_kernel,
                std::function<void(uint64_t node)> refused,
                std::function<bool(uint64_t node)> locked)
        : slots_(requests),
          cache_(cache),
          to_kernel_(std::move(to_kernel)),
          refused_(std::move(refused)),
          locked_(std::move(locked)),
          writes_(requests),
          from_before_(requests.last_seq()) {}

    // Gives the answers that an earlier client was about to give. The kernel takes each answer
    // once, so an answer that it has already does no harm.
    Status begin();
    // A request that needs no answer of the home: an error is told, or a close has nothing to wait
    // for. The slot is free then.
    Result<bool> settles(uint32_t n, int64_t now_ns);
    // A request that is taken and queued; `connected`: its home is there.
    Status taken(uint32_t n, int64_t now_ns, bool connected);
    // The home's answer to a write that has its answer already. The slot is free then.
    bool took(uint32_t n, ByteView answer, int64_t now_ns);
    // The home's answer to another request as its kernel gets it; empty: as it is. `hears`: of a
    // file that is opened, its closes are heard in any case.
    Bytes as_told(uint32_t n, ByteView answer, bool hears);
    // The kernel has that.
    void told(uint32_t n, const Bytes& answer, int64_t now_ns);

    // One byte is written there when all writes so far are at home: `d`, `s` if all that this mount
    // has changed is on the home's disk (`synced`), or `e` if the home has refused one and its job
    // has not heard yet.
    void ask(Fd who);
    void tell(bool synced);
    bool any_under_way() const { return writes_.any_under_way(); }
    // From now on for a while CRIU, which is a process of the capsule too, may copy descriptors and
    // close the copies. An error that is told to a close is then told to the job once more.
    void copied(int64_t now_ns) { copied_until_ns_ = now_ns + copied_ns; }

  private:
    static constexpr int64_t copied_ns = 600'000'000'000;  // longer than a dump takes
    static constexpr size_t asked_max = 16;
    struct Asked {
        Fd who;
        uint64_t seq;
    };
    Status answer(uint32_t n, int error);
    void heard(const fuse_in_header& asked, uint64_t fh, int64_t now_ns);
    Bytes answer_ahead(uint32_t n, int64_t now_ns, bool connected);
    Status answers(uint32_t n, const Bytes& answer);
    void answer_waiting(int64_t now_ns);

    Slots& slots_;
    Cache& cache_;
    ToKernel to_kernel_;
    std::function<void(uint64_t)> refused_;
    std::function<bool(uint64_t)> locked_;
    WriteBehind writes_;
    const uint64_t from_before_;  // up to that number a client before has taken them
    MadeFiles made_;
    std::vector<Asked> asked_;
    struct Waiting {
        uint32_t n;
        uint64_t seq;
    };
    std::vector<Waiting> waiting_;  // writes that had no room in the window
    int64_t copied_until_ns_ = 0;
};

}  // namespace souk::files
