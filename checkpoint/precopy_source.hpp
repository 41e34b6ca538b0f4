// SPDX-License-Identifier: GPL-2.0-or-later
// PrecopySource: the memory of a job that runs, as sections of a stream (checkpoint/pages.hpp), in
// rounds: first all private pages, then those that were written to since. look() and mark() want
// the job to stand still for a moment, since the kernel cannot tell and clear its marks in one; the
// pages are read while it runs. What of it is true in the end, checkpoint/sent_pages says.
//
// Owner: the source's cell, from before the first round until the move is over. What fails: /proc
// of a process that is there. A process that ends, or maps anew what is being read, is no failure:
// what it had is not sent.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/reach.hpp"
#include "checkpoint/sent_pages.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class PrecopySource {
  public:
    explicit PrecopySource(OpenProcessFiles open = open_process_files,
                           LookAt look = look_from_here);
    // Call it before the job stands still for a first look. Opens for each new process the files
    // through which it is marked. One that cannot be opened is met with again.
    void expect(const std::vector<pid_t>& pids);
    // While the job stands still: looks at all of these processes, by their pids here. About 20 ns
    // a page.
    Status look(const std::vector<pid_t>& pids);
    // Bytes that must be sent (again), by the last look.
    uint64_t left_bytes() const { return left_bytes_; }
    // Right after look(), before the job goes on: from here on the kernel marks what is written to;
    // a round begins.
    Status mark();

    // The round, at most stream_piece_max bytes at a time; its last piece ends with the section
    // that says so. Empty: all of it is sent. Valid until the next call.
    Result<std::string_view> piece();
    void sent(size_t n) { piece_at_ += n; }
    uint64_t bytes_sent() const { return bytes_sent_; }  // of pages, in all rounds

    // Call it after a last look(). Returns what was sent and is the memory as it stands; by pid and
    // address.
    std::vector<PageRange> valid() const;

  private:
    struct Process {
        pid_t pid = 0;  // here
        uint64_t start_ticks = 0;
        Fd pagemap, memory;  // of the address space at the last look
        Fd marks;            // of the process; lasts through all its address spaces
        SentPages pages;
        std::vector<uint64_t> left;  // addresses
        size_t next = 0;
    };
    static Status look_at(Process& process, const SeenProcess& seen);
    void fill();
    void add(pid_t inside, Process& process, uint64_t pages_max);

    OpenProcessFiles open_;
    LookAt look_;
    std::map<pid_t, Process> processes_;  // by pid inside
    std::map<pid_t, Fd> expected_;        // by pid here
    uint64_t left_bytes_ = 0, bytes_sent_ = 0;
    bool ended_ = true;  // the end of this round has been put
    std::unique_ptr<char[]> piece_;
    size_t piece_at_ = 0, piece_end_ = 0;
};

}  // namespace souk
