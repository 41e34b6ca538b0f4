// SPDX-License-Identifier: GPL-2.0-or-later
// HeldAnswers: answers to opens of files that have changed, which wait until the kernel was told
// (notices.hpp): whoever opens such a file then asks for its length. One that waits for too long,
// as others go on reading that file, is opened so that each read asks the home and goes by no
// length. Pure. Owned by the client of a mount, which keeps the slots taken meanwhile.
#pragma once

#include <linux/fuse.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <utility>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

class HeldAnswers {
  public:
    static constexpr int64_t longest_ns = 100'000'000;
    static constexpr int look_ms = 20;  // how often, while some wait

    bool some() const { return !held_.empty(); }
    // `answer`: a fuse_out_header and a fuse_open_out, to the request in that slot.
    void hold(uint32_t slot, uint64_t node, ByteView answer, int64_t now_ns) {
        held_[slot] = {node, {answer.begin(), answer.end()}, now_ns + longest_ns};
    }
    // The request was answered otherwise.
    void drop(uint32_t slot) { held_.erase(slot); }
    // All requests are about to be sent again, and answered again.
    void drop_all() { held_.clear(); }
    // Gives the answers that have waited long enough. `is_waited_for` tells whether the notice of
    // that node still waits.
    Status give(int64_t now_ns, const std::function<bool(uint64_t node)>& is_waited_for,
                const std::function<Status(uint32_t slot, ByteView answer)>& answer) {
        for (auto it = held_.begin(); it != held_.end();) {
            Held& held = it->second;
            const bool waits = is_waited_for(held.node);
            if (waits && now_ns < held.until_ns) {
                ++it;
                continue;
            }
            if (waits) read_directly(held.answer);
            const auto one = held_.extract(it++);
            TRY(answer(one.key(), one.mapped().answer));
        }
        return {};
    }

  private:
    struct Held {
        uint64_t node = 0;
        Bytes answer;
        int64_t until_ns = 0;
    };
    static void read_directly(Bytes& answer) {
        fuse_open_out opened{};
        uint8_t* const at = answer.data() + sizeof(fuse_out_header);
        std::memcpy(&opened, at, sizeof opened);
        opened.open_flags |= FOPEN_DIRECT_IO;
        std::memcpy(at, &opened, sizeof opened);
    }
    std::map<uint32_t, Held> held_;
};

}  // namespace souk::files
