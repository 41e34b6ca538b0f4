// SPDX-License-Identifier: GPL-2.0-or-later
// ContentReads: the reads of a client's kernel that its node's store of contents answers
// (local_contents.hpp). A read waits for the store for half a second at most, and no longer than
// until so much else was asked that the home would have to keep too many answers; then, and when it
// fails here, the home is asked. Owned by the client.
#pragma once

#include <functional>
#include <vector>

#include "agentd/files/cache.hpp"
#include "agentd/files/local_contents.hpp"
#include "agentd/files/upstream.hpp"

namespace souk::files {

class ContentReads {
  public:
    // `to_kernel` takes answers.
    ContentReads(Slots& requests, const Cache& cache, Upstream& upstream,
                 std::function<Status(const void* bytes, size_t size)> to_kernel)
        : slots_(requests), cache_(cache), upstream_(upstream), to_kernel_(std::move(to_kernel)) {}

    void connect(Fd store) { local_.connect(std::move(store)); }
    int fd() const { return local_.fd(); }
    // A new stream.
    void forget();
    // The store has said something.
    void hear();
    void learn(const Content& content) { local_.learn(content); }
    // The server is told by what it shall prove what it has.
    void prove();

    // A read that the kernel asks for, in that slot. False: the home is asked.
    bool takes(uint32_t n, int64_t now_ns);
    bool some_wait() const { return !waiting_.empty(); }
    // Decides about reads that have waited for the store.
    void decide(int64_t now_ns);

    // While there is nothing else to send, a content is brought.
    void bring();
    // The answer to that number brings a content on.
    bool took(uint64_t seq, ByteView answer);

  private:
    struct Waiting {
        uint32_t slot;
        uint64_t seq, node;
        int64_t until_ns;
    };
    Status read(uint32_t n);
    void renew(uint64_t node);

    Slots& slots_;
    const Cache& cache_;
    Upstream& upstream_;
    std::function<Status(const void*, size_t)> to_kernel_;
    LocalContents local_;
    std::vector<Waiting> waiting_;  // until it is known where
    uint64_t bring_seq_ = 0;        // of the request that brings a content on
};

}  // namespace souk::files
