// SPDX-License-Identifier: GPL-2.0-or-later
// LocalContents: what a client reads from its node's store of contents (store.hpp) in place of
// asking the home, and what it brings there. The home says what is in a file (Content); it is read
// here as long as the attributes of the file are leased (cache.hpp) and the same as when the home
// said so. What the store does not have is brought there once the job has read a quarter of it, by
// requests of the client's own, one at a time. Owned by the client; does nothing but talk to the
// store.
#pragma once

#include <linux/fuse.h>

#include <optional>
#include <unordered_map>
#include <vector>

#include "agentd/files/store.hpp"

namespace souk::files {

class LocalContents {
  public:
    // Connects to another store, or to none. Nothing of the store before is used any more.
    void connect(Fd store);
    int fd() const { return store_.get(); }
    // The home uses this nonce to prove that it has a content. Empty: there is no store.
    const std::optional<Prove>& prove() const { return prove_; }
    void learn(const Content& content);
    // There is a new stream, so the server must say again which content is in which file.
    void forget();

    enum class Where : uint8_t { home, here, wait };
    // Tells where so many bytes of the file are to be read. `attr`: its attributes as they are
    // leased now; null: they are not leased.
    Where where(uint64_t node, const fuse_attr* attr, uint32_t bytes);
    int file(uint64_t node) const { return files_.at(node).file.get(); }
    // Tells whether the file's lease should be asked for again, now that it has ended.
    bool renews(uint64_t node, int64_t now_ns);
    // Reads what the store says.
    void hear();

    // A request to the home that brings a content on. False: none is due.
    bool next_request(Bytes& request);
    // Takes the answer to that request: a fuse_out_header and what follows it.
    void answered(ByteView answer);

  private:
    static constexpr size_t files_max = 8192, open_max = 400, queue_max = 256;
    struct File {
        Content content;
        enum State : uint8_t { asked, here, missing, queued } state = asked;
        Fd file;
        int64_t renewed_ns = 0;
    };
    struct Fill {
        uint64_t node = 0, fh = 0, at = 0;
        ContentId id;
        enum Step : uint8_t { asked, open, opening, read, reading, bringing, close } step = asked;
    };
    bool say(const StoreAsk& ask, int file = -1);
    void find(uint64_t node, File& file);
    void lost();
    void consider(uint64_t node, File& file);
    void begin_fill();
    void end_fill(bool kept);

    Fd store_, memory_;
    std::optional<Prove> prove_;
    std::unordered_map<uint64_t, File> files_;     // by node
    std::unordered_map<uint64_t, uint64_t> read_;  // bytes that the job has asked the home for
    size_t open_ = 0;
    std::vector<uint64_t> queue_;
    std::optional<Fill> fill_;
};

}  // namespace souk::files
