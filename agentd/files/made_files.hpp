// SPDX-License-Identifier: GPL-2.0-or-later
// MadeFiles: regular files that the job has made from here and has open since, so that their
// attributes are known without asking: what was answered when they were made, and what has passed
// here since. With that a change of mode or times by their owner (an archiver's, of each file) is
// answered ahead, as a write is (write_behind.hpp). The answer is good for no time: the next look
// asks the home. Whatever else changes such a file, or may, ends that.
// Pure. Owned by the client.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <unordered_map>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

class MadeFiles {
  public:
    static constexpr size_t files_max = 256;

    // The home's answer to a request.
    void answered(ByteView request, ByteView answer);
    // A request of the kernel that is not answered by `answer`.
    void asked(ByteView request);
    // The answer to a change of attributes, and which open file hears if the home refuses it;
    // empty: the home is to be asked.
    Bytes answer(ByteView request, int64_t now_s, uint64_t& fh);
    size_t files() const { return files_.size(); }

  private:
    struct File {
        uint64_t fh = 0;
        fuse_attr attr{};
    };
    std::unordered_map<uint64_t, File> files_;  // by node
};

}  // namespace souk::files
