// SPDX-License-Identifier: GPL-2.0-or-later
// PrecopyStore: pages that came ahead of a job, until it is restored: one memfd a process, a page
// at its own address, the newest of it alone. It is in memory and has no name, so that nothing of
// it outlives this process.
//
// Owner: the destination's cell, from the first page until all are in place. What fails: more bytes
// than were announced, or no memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/sent_pages.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// Fails unless this machine has room for so much and a job of that size at once; the error says how
// much is free.
Status room_precopy(uint64_t bytes);

class PrecopyStore {
  public:
    // The store takes at most so many bytes of distinct pages.
    explicit PrecopyStore(uint64_t bytes_max) : bytes_max_(bytes_max) {}
    Status put(const PageRange& range, std::string_view bytes);
    uint64_t bytes_taken() const { return bytes_taken_; }  // in all puts

    // Names the pages to be used. Fails if one of the ranges is not here, or if the list has a
    // digest and the bytes have another.
    Status use(PrecopyList list);
    uint64_t bytes_to_use() const { return bytes_to_use_; }
    // The next of these, at most some hundred kilobytes; an empty one: that was all. Gives back the
    // room of the one before.
    struct Piece {
        PageRange range;
        std::string_view bytes;  // until the next call
    };
    Result<Piece> next();
    // Returns the piece that begins with this page, up to so many pages, if it is to be used; else
    // an empty piece.
    Result<Piece> at(const PageRange& wish);

  private:
    struct Process {
        Fd memory;
        std::map<uint64_t, uint64_t> have;  // start -> end, disjoint, not adjacent
    };
    Status read(const PageRange& range, char* to) const;
    bool has(const PageRange& range) const;
    Status check_digest() const;

    std::map<pid_t, Process> processes_;  // by pid of the image
    uint64_t bytes_max_, bytes_held_ = 0, bytes_taken_ = 0, bytes_to_use_ = 0;
    PrecopyList list_;
    PageRange last_;           // that next() gave
    size_t index_ = 0;         // of the range that it is in
    uint64_t index_done_ = 0;  // pages of it
    std::unique_ptr<char[]> buffer_;
};

}  // namespace souk
