// SPDX-License-Identifier: GPL-2.0-or-later
// WriteBehind: which writes a client answers before its home has them, and what becomes of those
// that the home then refuses.
//
// A write stays in its slot until the home has answered it, so it outlives the client, and all
// requests go in one order: whatever is asked later, of this file or another, is done at home
// after it. Whoever waits for an answer of the home has waited for all writes before it. So an
// fsync needs nothing of its own, and a close asks the home only while writes of that file are
// under way. Changes of the attributes of files that are being made (made_files.hpp) count as
// writes.
//
// An error is told once: to the next write to the open file, or to its fsync or close. Until then a
// move, a freeze and a checkpoint fail with it (`whole`), since the next copy of the job would not
// hear of it.
//
// These writes are not answered ahead: what is synced with each write (O_SYNC, O_DSYNC, O_DIRECT);
// what the kernel writes of a mapping, which nobody waits for; writes to a file whose close this
// client would not hear of; writes while the home is away, and for some seconds after it had no
// room. How much may be under way follows how long the home takes, so that all of it is at home
// after a fraction of a second. Pure but for the memory of its slots. Owned by the client.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <unordered_map>

#include "agentd/files/slots.hpp"

namespace souk::files {

// Says how many bytes may be under way: as many as have come home lately in half of the time that
// is slow. So it takes one round trip to find out what a link carries.
class WriteWindow {
  public:
    static constexpr uint64_t bytes_min = 1 << 20, bytes_max = 32 << 20;
    static constexpr int64_t slow_ns = 300'000'000;

    bool has_room(uint64_t bytes) const { return out_ + bytes <= bytes_; }
    void refused() { limited_ = true; }
    void sent(uint64_t bytes);
    // So many bytes, sent at `sent_ns`, are at home.
    void answered(uint64_t bytes, int64_t sent_ns, int64_t now_ns);
    uint64_t bytes() const { return bytes_; }

  private:
    uint64_t bytes_ = 4 << 20, out_ = 0;
    uint64_t home_ = 0;               // bytes that are at home by now
    std::deque<uint64_t> home_then_;  // of each that is under way: when it was sent
    bool limited_ = false;            // somebody had to wait since it grew last
    int64_t shrunk_ns_ = 0;           // what was sent before says no more than was known then
};

class WriteBehind {
  public:
    static constexpr uint32_t left_to_others = 16;  // slots
    static constexpr int64_t careful_ns = 5'000'000'000;

    // Writes that an earlier client has left count as under way.
    explicit WriteBehind(Slots& requests);

    // This request, which is taken and queued, a write or a change of attributes, may be answered
    // now.
    bool may_answer(uint32_t n, int64_t now_ns);
    // The last request was refused only because too much is under way.
    bool lacks_room() const { return lacks_room_; }
    // The request is answered ahead, so it counts as under way.
    void answers(uint32_t n);
    // Takes the home's answer to such a request. Returns its error; 0: it is at home.
    int answered(uint32_t n, ByteView answer, int64_t now_ns);
    bool under_way(uint64_t node) const { return writes_.contains(node); }
    bool any_under_way() const { return !writes_.empty(); }

    // Returns the error that the next write to that open file, or its close, must be told; 0: none.
    int error(uint64_t node, uint64_t fh);
    // Returns an error of any open file of that node.
    int error_of(uint64_t node);
    // The user of that open file was told of its error.
    void heard(uint64_t node, uint64_t fh);
    // The file is closed, so nobody can hear of its error any more.
    void closed(uint64_t node, uint64_t fh);
    bool has_errors() const { return failed_ != 0; }

    // Tells whether all writes up to this number are at home.
    bool is_home(uint64_t seq);

  private:
    void failed(uint64_t node, uint64_t fh, int error);
    FailedWrite* find(uint64_t node, uint64_t fh);

    Slots& slots_;
    WriteWindow window_;
    std::set<uint64_t> closed_;                      // open files of which writes are under way
    std::unordered_map<uint64_t, uint32_t> writes_;  // of a node: how many are under way
    uint32_t count_ = 0, failed_ = 0;
    bool lacks_room_ = false;
    int64_t careful_until_ns_ = 0;
};

// The answer to a write that is done whole.
Bytes answer_write(ByteView request);
// Tells whether the request opens a file, making it or not, and not only to read.
bool opens_to_write(ByteView request);
// Asks in the answer to such a request for a word at each close.
void hear_close(uint32_t opcode, uint8_t* answer, size_t bytes);
// The file that is open: of a write, an fsync, a close (FUSE_FLUSH), a release, or a change of
// attributes that is answered ahead. Nothing: another request.
std::optional<uint64_t> open_file_of(ByteView request);

}  // namespace souk::files
