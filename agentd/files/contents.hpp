// SPDX-License-Identifier: GPL-2.0-or-later
// Contents: at home, what is in the programs and libraries that a session opens, told to a client
// whose node keeps contents (store.hpp), so that they need not be sent again. What is told is proof
// that the home has the content, by the node's nonce: a digest alone, which others may know, is no
// right to it. A big file is read in slices, between requests. While a job moves, what its programs
// have open where it is will be opened where it goes: that is read ahead. Owned by a Session.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "agentd/files/nodes.hpp"
#include "agentd/files/talk.hpp"
#include "kernel/sys/store/sha256.hpp"

namespace souk::files {

inline constexpr uint64_t content_bytes_min = 4096, content_bytes_max = uint64_t{2} << 30;

// Makes both hashes of a ContentId, over content that comes in parts.
class ContentHash {
  public:
    explicit ContentHash(const Prove& prove) { proof_.update(prove.nonce); }
    void update(std::span<const uint8_t> bytes) {
        digest_.update(bytes);
        proof_.update(bytes);
        size_ += bytes.size();
    }
    ContentId finish() { return {digest_.finish(), proof_.finish(), size_}; }
    uint64_t size() const { return size_; }

  private:
    Sha256 digest_, proof_;
    uint64_t size_ = 0;
};

class Contents {
  public:
    void begin(const Prove& prove);
    // A program that the job has opened for reading. What is known of it at once is told at once.
    void opened(uint64_t node, int fd, const struct stat& st);
    // The file will be opened; or it is open as that node, and its content is told in its turn.
    void expect(int fd, const struct stat& st, uint64_t node = 0);
    // Goes on with one slice. True: there is more.
    bool work();
    std::vector<Content> take_ready() { return std::exchange(ready_, {}); }

  private:
    static constexpr size_t kept_max = 16'384, queue_max = 64;
    using File = std::pair<uint64_t, uint64_t>;  // device, inode
    struct Job {
        uint64_t node = 0;  // 0: nobody has opened it yet
        File file;
        Fd fd;
        Stamp stamp;
        ContentHash hash;
    };
    static bool is_settled(const Stamp& stamp);
    void told(uint64_t node, const ContentId& id, const Stamp& stamp);
    Job* queued(const File& file, const Stamp& stamp);
    void begin(Job job, bool at_once);
    bool slice(Job& job);

    std::optional<Prove> prove_;
    std::deque<Job> queue_;
    std::map<File, std::pair<Stamp, ContentId>> known_;
    std::vector<Content> ready_;
};

Stamp stamp_of(const struct stat& st);
Stamp stamp_of(const struct statx& st);

}  // namespace souk::files
