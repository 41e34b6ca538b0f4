// SPDX-License-Identifier: GPL-2.0-or-later
// SharedImage: puts what the processes of a frozen job share copy-on-write into the image of its
// lazy dump, each page once (checkpoint/shared_pages). It looks at the kernel's page tables
// (/proc/PID/pagemap: the number of each page), reads the frozen memory, and rewrites the pagemaps.
// An image of a job that shares nothing stays as it is.
//
// Owner: the source's cell, between the dump and whatever reads the image's lazy ranges; the job
// must stand frozen. What fails: a process that is gone, no room (ENOSPC), an image that is
// damaged; then the image is of no use.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "checkpoint/frozen_memory.hpp"
#include "checkpoint/reach.hpp"
#include "checkpoint/shared_pages.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class SharedImage {
  public:
    // `pids` as of pids_inside.
    static Result<std::unique_ptr<SharedImage>> open(
        int image_directory, const std::map<pid_t, pid_t>& pids,
        const OpenProcessFiles& open = open_process_files);
    // About a millisecond of the work; false: it is done.
    Result<bool> step();

  private:
    explicit SharedImage(Fd directory) : directory_(std::move(directory)) {}
    void look();
    Status begin_to_write();
    Status write_piece();
    Status finish();

    Fd directory_;
    SharedPages pages_;
    FrozenMemory memory_;
    std::vector<PagemapImage> maps_;  // as CRIU has left them, without entries
    std::vector<Fd> pagemaps_;        // /proc/PID/pagemap, the same order
    std::vector<Fd> old_;             // their files with pages; opened when needed
    std::vector<uint64_t> entries_, again_;
    Fd file_;
    uint32_t number_ = 0;  // of the new one
    std::unique_ptr<char[]> buffer_;
    size_t run_ = 0;         // that is being written
    uint64_t run_done_ = 0;  // pages of it
    uint64_t written_ = 0;   // bytes
};

}  // namespace souk
