// SPDX-License-Identifier: GPL-2.0-or-later
// Spool: the output of one home job, one file per stream, whose byte N is byte N of the stream: its
// length says how much the home node has, so a restarted agentd needs no other record. What its
// terminal has written is given back to the file system (holes), and `begin` says what is still
// kept. Owned by Terminals.
//
// What fails: opening (the error names the file), and appending when the disk is full: then nothing
// is taken, and the sender, who was not told otherwise, still has the bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class Spool {
  public:
    // stream: 0 stdout (or the terminal), 1 stderr. Offsets in bytes since the job began.
    uint64_t begin(int stream) const { return streams_[stream].begin; }
    uint64_t end(int stream) const { return streams_[stream].end; }
    // How much of both streams is kept.
    uint64_t bytes() const {
        return streams_[0].end - streams_[0].begin + (streams_[1].end - streams_[1].begin);
    }
    // Takes what is new of [offset, offset + bytes): what lies before end() is known already. An
    // error with code EAGAIN if there would be a gap.
    Status append(int stream, uint64_t offset, std::string_view bytes);
    // At most `bytes_max` bytes from `offset` (at least begin()).
    Result<std::string> read(int stream, uint64_t offset, size_t bytes_max) const;
    // Nobody will ask for what lies before `offset` again.
    void forget_before(int stream, uint64_t offset);

  private:
    friend class SpoolDir;
    struct File {
        Fd fd;
        uint64_t begin = 0, end = 0;
    };
    File streams_[2];
};

// The directory of all spools. Files in which a job that is gone has written nothing wait under
// another name for the next ones: to make and remove two for each job is the slowest that some file
// systems can be asked for.
class SpoolDir {
  public:
    explicit SpoolDir(Fd dir);
    // Makes the two files, or takes what is there.
    Result<Spool> open(uint64_t seq);
    // Opens, or makes, the note of how far each stream is in its user's files (OutputFiles).
    Result<Fd> open_written(uint64_t seq);
    // Reads what is noted there: 0 where nothing is.
    void read_written(uint64_t seq, uint64_t written[2]) const;
    void remove(uint64_t seq);
    // On the disk, of both streams, without opening them.
    uint64_t bytes(uint64_t seq) const;
    int fd() const { return dir_.get(); }

  private:
    Fd dir_;
    std::vector<std::string> spares_;  // names of empty files
    uint64_t next_spare_ = 0;
};

}  // namespace souk
