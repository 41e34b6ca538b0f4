// SPDX-License-Identifier: GPL-2.0-or-later
// The memory of a job that is frozen to disk: what a lazy dump leaves out goes out of the frozen
// processes into one file of the image (page_file_name), page by page in the order of lazy_ranges,
// and from there into the restored ones. Both ends work in slices on the loop, so that a daemon
// serves others meanwhile; the bytes pass through a core's cache once, their digest with them, and
// the disk writes while memory is still read.
//
// Owner: a cell of agentd. Destroying either ends it; nothing is called any more.
// What fails: the file system (errno), a process that is gone, a file that is not what the manifest
// says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/encrypted_file.hpp"
#include "checkpoint/frozen_memory.hpp"
#include "checkpoint/images.hpp"
#include "kernel/base/rate_limit.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class PageFileWrite {
  public:
    // Called once, and may destroy the object: all pages are on the disk (not yet the file's name),
    // or why not.
    using Done = std::function<void(Result<ImageFile>)>;
    // The room is taken at once (ENOSPC). The job must stand frozen until `done`. `pids` as of
    // pids_inside. The file comes into `to`: encrypted, if there is a key, and no faster than the
    // rate, which outlives this; null: as fast as the disk takes it.
    struct Target {
        int directory = -1;
        DiskKey key = {};
        RateLimit* rate = nullptr;
    };
    static Result<std::unique_ptr<PageFileWrite>> start(
        Loop& loop, int image_directory, const Target& to, const std::map<pid_t, pid_t>& pids,
        Done done, const OpenProcessFiles& open = open_process_files);
    // written() counts what is in the file now, bytes() what is in it when it is whole.
    uint64_t written() const { return written_; }
    uint64_t bytes() const { return bytes_; }

  private:
    PageFileWrite(Loop& loop, Done done) : loop_(loop), done_(std::move(done)) {}
    void go_on();
    Status fill_and_write();
    Status write_plain(size_t bytes);
    Status sync(uint64_t from, uint32_t bytes);
    void synced(const Status& status);
    void end(Status status);
    int fd() const { return encrypted_ ? encrypted_->fd() : file_.get(); }

    Loop& loop_;
    Done done_;
    Fd file_;
    std::optional<EncryptedWriter> encrypted_;  // instead of file_
    std::optional<ImageFile> made_;             // encrypted, and complete
    FrozenMemory memory_;
    std::vector<PageRange> ranges_;
    size_t index_ = 0;         // of the range that is being written
    uint64_t index_done_ = 0;  // pages of it
    uint64_t written_ = 0, sync_from_ = 0, bytes_ = 0;
    Digest digest_;
    std::unique_ptr<char[]> buffer_;
    std::vector<Sync> syncs_;
    int syncing_ = 0;
    bool last_ = false;  // the sync of all is under way
    RateShare share_;
    Timer again_;
};

class PageFileRead {
  public:
    using Put = std::function<Status(const PageRange&, std::string_view bytes)>;
    using Done = std::function<void(Status)>;
    // `ranges` as the image has them (lazy_ranges), `digest` as the manifest has it. Error: the
    // length is another.
    static Result<std::unique_ptr<PageFileRead>> open(Loop& loop, Fd file,
                                                      std::vector<PageRange> ranges,
                                                      std::string digest);
    // Opens an encrypted file, of which each chunk is checked before its pages are put.
    static Result<std::unique_ptr<PageFileRead>> open(Loop& loop, EncryptedReader file,
                                                      std::vector<PageRange> ranges);
    // Pages that are waited for, now.
    Status read(const PageRange& range, const Put& put);
    // All of them once, in order; `done` once, unless `put` has failed: the digest is right, or it
    // is damaged.
    void start(Put put, Done done);
    // After this nothing more is put, and `done` does not come. May be called from `put`.
    void stop();

  private:
    PageFileRead(Loop& loop, Fd file, std::vector<PageRange> ranges, std::string digest)
        : loop_(loop),
          file_(std::move(file)),
          ranges_(std::move(ranges)),
          wanted_digest_(std::move(digest)) {}
    void go_on();
    Status read_piece();
    Status take_ranges(uint64_t bytes_in_file);
    Status read_bytes(uint64_t at, size_t bytes);

    Loop& loop_;
    Fd file_;
    std::optional<EncryptedReader> encrypted_;  // instead of file_
    std::vector<PageRange> ranges_;
    std::vector<uint64_t> offsets_;  // of each range in the file
    uint64_t bytes_ = 0, at_ = 0;
    size_t index_ = 0;         // of the range that `at_` lies in
    uint64_t index_done_ = 0;  // bytes of it
    std::string wanted_digest_;
    Digest digest_;
    std::unique_ptr<char[]> buffer_;
    Put put_;
    Done done_;
    bool stopped_ = false;
    Timer again_;
};

}  // namespace souk
