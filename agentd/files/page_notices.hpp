// SPDX-License-Identifier: GPL-2.0-or-later
// PageNotices: has the kernel forget what it has read of a file, all its pages and attributes,
// because its reader has got a lock and others may have written before. The kernel does that when
// nobody reads these pages any more, so who tells it waits for the answers to such reads: a thread
// does it, and the client goes on answering. Owned by the client of a mount.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {

class PageNotices {
  public:
    // `fuse` is where the kernel's requests are read.
    explicit PageNotices(int fuse) : fuse_(fuse) {}
    PageNotices(const PageNotices&) = delete;
    PageNotices& operator=(const PageNotices&) = delete;
    // False: it cannot be told.
    bool forget(uint64_t node);
    // Readable when some were forgotten; -1: no file was ever.
    int fd() const { return done_.read_end.get(); }
    // Returns how many were forgotten since the last call, in the order in which they were asked.
    uint64_t take_done();

  private:
    Status begin();
    static void* run(void* self);

    const int fuse_;
    Pipe asked_, done_;
    pthread_t thread_{};
};

}  // namespace souk::files
