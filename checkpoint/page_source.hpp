// SPDX-License-Identifier: GPL-2.0-or-later
// PageSource: the pages of a frozen job, straight out of its memory, as sections of a stream
// (checkpoint/pages.hpp): from the other side's first acknowledgement on all of them once, in
// order, and before the next of these whatever it has asked for. Nothing is kept on disk or in a
// second copy.
//
// Owner: the sender of a move. The job must stand frozen from open() until the other side has all;
// it is only read. What fails: a process that is gone (ESRCH).
#pragma once

#include <deque>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/frozen_memory.hpp"
#include "kernel/base/result.hpp"

namespace souk {

class PageSource {
  public:
    // So many bytes of pages may be under way that the other side has not put in place. A page that
    // the other side waits for may have so many before it.
    static constexpr uint64_t window_bytes = 2 << 20;
    static constexpr size_t wishes_max = 4096;

    // `pids` as of pids_inside. Error: the process of a range is not among them.
    static Result<PageSource> open(std::vector<PageRange> ranges,
                                   const std::map<pid_t, pid_t>& pids,
                                   const OpenProcessFiles& open = open_process_files);
    uint64_t bytes_total() const { return bytes_total_; }

    // The other side waits for these pages; it may say so also after all were sent. A wish that is
    // not needed costs nothing: its page comes in its turn.
    void wish(const PageRange& range);
    // The other side has put so many bytes of pages in place, in all. The first call (0) says that
    // it is ready for pages.
    void acknowledged(uint64_t bytes);
    // Returns what is to be sent next, at most stream_piece_max bytes. It is empty when all is
    // sent, or until a wish or an acknowledgement comes. Valid until the next call.
    Result<std::string_view> piece();
    void sent(size_t n) { piece_at_ += n; }
    // The other side waits for a page that has not been sent.
    bool is_waited_for() const { return !wishes_.empty() || wished_until_ > piece_at_; }
    // The end has been sent, and no wish waits.
    bool done() const { return ended_ && wishes_.empty() && piece_at_ == piece_end_; }

  private:
    Status fill();
    Status add(const PageRange& range);

    std::vector<PageRange> ranges_;
    FrozenMemory memory_;
    std::deque<PageRange> wishes_;
    size_t index_ = 0;         // of the range that is being sent
    uint64_t index_done_ = 0;  // pages of it
    uint64_t bytes_total_ = 0, bytes_sent_ = 0, bytes_acknowledged_ = 0;
    bool started_ = false, ended_ = false;
    std::unique_ptr<char[]> piece_;
    size_t piece_at_ = 0, piece_end_ = 0;
    size_t wished_until_ = 0;  // of the piece: what was wished for is in front of that
};

}  // namespace souk
