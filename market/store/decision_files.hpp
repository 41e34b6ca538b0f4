// SPDX-License-Identifier: GPL-2.0-or-later
// DecisionFiles: the decision log on disk, as segments: DIR/NNNNNNNN.log with the text of blocks
// (market/core/decision_text.hpp), and beside each NNNNNNNN.names, which says whose the pseudonyms
// are. A segment begins with a line that names the hash of all before it, and with a snapshot, so
// the oldest may go. Each block ends with a line of the first digits of the hash of (the hash
// before it, the block); the newest is the log's head.
//
// The log lies in files and not in rows of the state database: a log that cannot be written must
// hold nothing back, and what has become too old is removed at once. A crash may leave half a block
// at the end; open() cuts it off. Owned by marketd. Errors: of files, with their names; after a
// failed append the next one must begin a segment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"
#include "market/core/decision_text.hpp"

namespace souk {

// Salted hashes of ids: of a job the same for ever, of a user another one on each day (UTC). Who is
// told a salt can see that a pseudonym is that of this id, on that day; nobody else can find out
// whose it is, or which ones of two days are of one user.
class Pseudonymizer {
  public:
    struct Name {
        std::string salt, text;  // text: hash of (salt, blank, id)
    };
    explicit Pseudonymizer(std::string secret) : secret_(std::move(secret)) {}
    Name job(const std::string& id) const { return named(id, id); }
    Name user(uint32_t uid, Nanos at) const;
    // Returns the name that versions before the third of the grammar had, which is the same on all
    // days.
    Name lasting_user(uint32_t uid) const { return named(user_id(uid), user_id(uid)); }

  private:
    static std::string user_id(uint32_t uid) { return "uid " + std::to_string(uid); }
    Name named(const std::string& id, const std::string& salted) const;

    std::string secret_;
};

class DecisionFiles {
  public:
    struct Bounds {
        int64_t bytes_max = 0;
        Nanos age_max;  // 0: whatever their age
    };
    using Named = std::vector<market::DecisionText::Named>;

    // Makes the directory; reads the newest segment.
    static Result<DecisionFiles> open(const std::string& dir, Bounds bounds);

    // One block, of which `number` is the newest decision. `begins`: it is a snapshot, and begins a
    // segment; older ones go as the bounds say.
    Status append(const std::string& block, uint64_t number, const Named& named, bool begins,
                  Nanos now);
    // The segment is long enough or old enough, and another is to begin.
    bool wants_segment(Nanos now) const;

    uint64_t number() const { return number_; }  // of the newest decision
    const std::string& head() const { return head_; }
    int64_t bytes() const;
    Nanos oldest() const { return segments_.empty() ? Nanos{} : segments_.begin()->second.begun; }
    int file() const { return file_.get(); }  // for fdatasync; -1: none is open
    const Pseudonymizer& pseudonyms() const { return pseudonyms_; }

    // Reads on behind `after` (empty: from the first), as much as one answer takes: whole lines of
    // the segments that hold decisions from `from` to `to`, then names as `shows` says, then
    // nothing, which is the end. `next` says where to go on.
    struct Ask {
        Nanos from{INT64_MIN}, to = Nanos::never();
        std::optional<uint32_t> uid;  // nobody: the names of all
    };
    Result<std::string> read(const Ask& ask, const std::string& after, std::string& next) const;

  private:
    struct Segment {
        Nanos begun;
        int64_t bytes = 0;
    };
    DecisionFiles(std::string dir, Bounds bounds, Pseudonymizer pseudonyms)
        : dir_(std::move(dir)), bounds_(bounds), pseudonyms_(std::move(pseudonyms)) {}
    Status find_segments();
    Status read_newest();
    Status begin_segment(Nanos now, std::string& header);
    bool oldest_is_old(Nanos now) const;
    void trim(Nanos now, int64_t bytes_max);
    std::string path(uint64_t segment, const char* end) const;
    std::string names_of(const std::string& rows, const Ask& ask, Nanos begun) const;

    std::string dir_;
    Bounds bounds_;
    Pseudonymizer pseudonyms_;
    std::map<uint64_t, Segment> segments_;  // the last is the one that is written
    std::string head_;
    uint64_t number_ = 0;
    int64_t snapshot_bytes_ = 0;
    int64_t log_bytes_ = 0;  // of the newest segment without its names
    Fd file_, names_;
};

}  // namespace souk
