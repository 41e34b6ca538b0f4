// SPDX-License-Identifier: GPL-2.0-or-later
// Store: the contents of programs and libraries that this node has read from homes, on its disk by
// their SHA-256, for all jobs here: a process of its own, which clients (client.hpp) ask. It gives
// a content to who brings the home's proof that the home has it: SHA-256 of a nonce, which is made
// for each client, and the content. Both hashes are reckoned anew over what lies on the disk before
// it is given: what is not what it was is removed. It files what clients bring under the digest
// that it reckons itself. So neither a client nor a home can have a content that it has not, or put
// one in another's place.
//
// The directory is root's alone. It is read below a descriptor and no link is followed; what is no
// plain file of the store's own is removed. When there is no room the contents go that were not
// asked for longest.
//
// Each client has a SOCK_SEQPACKET. The store says Begin, the client may then hand over a memory
// file (ask::memory, once) through which it brings contents part by part.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agentd/files/contents.hpp"

namespace souk::files {

// A client sends this to the store.
struct StoreAsk {
    enum Kind : uint32_t { memory = 1, find, put, part, cancel };
    uint32_t kind = 0;
    uint32_t bytes = 0;   // of a part: so many of the memory's
    uint64_t number = 0;  // of a find: comes back
    ContentId id;         // of a find or a put
};
struct StoreSays {
    // `found` brings a descriptor; `more` asks for the next part; `kept` and `refused` end a put.
    enum Kind : uint32_t { begin = 1, found, missing, more, kept, refused };
    uint32_t kind = 0;
    uint32_t unused = 0;
    uint64_t number = 0;
    Prove prove;  // of begin
};
inline constexpr uint32_t store_part_bytes = 256 * 1024;

class Store {
  public:
    // The directory is checked, and what lies there looked at.
    static Result<Store> open(Fd directory, uint64_t bytes_max);
    // Serves the clients whose sockets come from `control`, until that ends.
    Status run(int control);

    uint64_t bytes() const { return bytes_; }
    size_t count() const { return entries_.size(); }

  private:
    static constexpr size_t clients_max = 1024, finds_max = 4096;
    using Digest = Sha256::Digest;
    struct Entry {
        uint64_t size = 0;
        std::list<Digest>::iterator used;
    };
    struct Find {
        StoreAsk ask;
        Fd file;
        ContentHash hash;
    };
    struct Put {
        ContentId id;
        std::string name;  // until it has its own
        Fd file;
        Sha256 hash;
        uint64_t bytes = 0;
    };
    struct Client {
        Fd socket, memory;
        Prove prove;
        std::deque<StoreAsk> finds;
        std::optional<Find> find;  // the first of them, being read
        std::optional<Put> put;
        bool gone = false;
    };
    Store(Fd directory, uint64_t bytes_max)
        : directory_(std::move(directory)), bytes_max_(bytes_max) {}
    void load();
    void hear_control(int control, bool& ended);
    void hear(Client& c);
    void take(Client& c, const StoreAsk& ask, std::vector<Fd> fds);
    bool work();
    void work_on(Client& c);
    void found(Client& c, Find& find);
    void begin_put(Client& c, const ContentId& id);
    void take_part(Client& c, uint32_t bytes);
    void end_put(Client& c);
    void drop_put(Client& c);
    Fd open_entry(const Digest& digest);
    void add(const Digest& digest, uint64_t size);
    void remove(const Digest& digest);
    bool make_room(uint64_t bytes);
    bool disk_has(uint64_t bytes) const;
    bool disk_takes(uint64_t bytes) const;
    static void say(Client& c, StoreSays::Kind kind, uint64_t number = 0, int file = -1);

    Fd directory_;
    uint64_t bytes_max_, bytes_ = 0, puts_ = 0;
    std::map<Digest, Entry> entries_;
    std::list<Digest> used_;  // the one that was asked for last at the end
    std::list<Client> clients_;
};

}  // namespace souk::files
