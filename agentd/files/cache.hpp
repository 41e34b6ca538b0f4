// SPDX-License-Identifier: GPL-2.0-or-later
// Cache: what the client of a mount answers by itself, without asking the home: names and
// attributes, and opens for reading of what lies in directories of programs (Export::quiet). The
// server says of an answer that it may be used again (Lease), watches the file, and recalls it when
// somebody changes it at home; after lease_ns or own_lease_ns it is asked for again in any case.
// Both are far less than the lease of the job itself, and a job that stands still asks nothing.
// What the job itself changes passes here, and is dropped.
//
// A file that is closed stays open at home for the next open (parked), by one user at a time, so
// that a client that dies leaves nothing but open files behind. Each name that is answered here is
// a reference that the kernel has and the server does not count: `forgotten` takes these off.
// Pure. Owned by the client.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agentd/files/talk.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

class Cache {
  public:
    static constexpr int64_t lease_ns = 30'000'000'000;     // of programs
    static constexpr int64_t own_lease_ns = 5'000'000'000;  // of other files
    static constexpr size_t lines_max = 65'536, parked_max = 256, offered_max = 8192;

    // The answer to a request, whole; false: the home is to be asked.
    bool answer(ByteView request, int64_t now_ns, Bytes& out);
    // A FORGET or BATCH_FORGET on its way to the server: the references that it does not know are
    // taken off in place. False: nothing of it is left.
    bool forgotten(uint8_t* request, size_t bytes);
    // The server's answer to a request, before the kernel has it.
    void learn(ByteView request, ByteView answer, Lease lease, int64_t now_ns);
    // That name in that directory has changed. No name: all names there; no directory (0):
    // everything. `stays`: the name still names the same file.
    void recall(uint64_t directory, const std::string& name, bool stays = false);
    // The file is not as it was told, so its attributes must be asked for anew.
    void file_has_changed(uint64_t node) { drop_node(node); }
    // Nodes whose attributes the kernel was told from here, too, and has to forget.
    std::vector<uint64_t> take_stale() { return std::exchange(stale_, {}); }
    // Takes a file that stays open at home and is of no use any more; 0: none.
    uint64_t take_unwanted(uint64_t& node, int64_t now_ns);
    // Returns the attributes of a file while they are leased; null: they are not.
    const fuse_attr* attributes(uint64_t node, int64_t now_ns) const {
        return is_known(node, now_ns) ? &attributes_.at(node).attr.attr : nullptr;
    }
    // Returns the node of that name if the name may be answered until then; 0 if not, or if there
    // is none.
    uint64_t node_of(uint64_t directory, const std::string& name, int64_t until_ns) const;
    // A write to the node is under way (`writing`) or at home (`written`). Its kernel has an answer
    // to the write already, so what the home says of the node in between is out of date.
    void writing(uint64_t node);
    void written(uint64_t node);
    // The client itself has looked the node up, so the server counts a reference that the kernel
    // does not have.
    void hold(uint64_t node) { --uncounted_[node]; }
    // The client itself has opened the node. This answers the next open with these flags.
    void offer(uint64_t node, uint32_t flags, const fuse_open_out& opened, int64_t until_ns);
    // Counts such opened files that are good until then.
    size_t offers(uint64_t node, uint32_t flags, int64_t until_ns) const;
    // The client itself has asked for this. It is good for a moment.
    void learn_statfs(uint64_t node, const fuse_statfs_out& said, int64_t until_ns);
    size_t lines() const { return names_.size() + attributes_.size(); }

  private:
    using Name = std::pair<uint64_t, std::string>;
    struct Entry {
        fuse_entry_out entry{};
        int64_t until_ns = 0;
    };
    struct Attributes {
        fuse_attr_out attr{};
        Name name;  // by which it is watched
        int64_t until_ns = 0;
    };
    struct Offered {
        uint64_t node = 0;
        uint32_t flags = 0;
        fuse_open_out opened{};
        int64_t until_ns = 0;
    };
    struct Open {
        uint64_t fh = 0;
        bool parked = false;
    };

    bool answer_lookup(uint64_t parent, const char* name, int64_t now_ns, Bytes& body);
    bool is_known(uint64_t node, int64_t now_ns) const;
    bool answer_statfs(uint64_t node, int64_t now_ns, Bytes& body) const;
    bool answer_open(uint64_t node, uint32_t flags, int64_t now_ns, Bytes& body);
    void end_offers(int64_t now_ns);
    void drop_name(const Name& name);
    void drop_node(uint64_t node);
    void stale(uint64_t node);
    void drop_all();
    void learn_entry(const Name& name, ByteView body, int64_t until_ns);
    void changed(const fuse_in_header& head, ByteView rest);
    uint64_t forget(uint64_t node, uint64_t count);

    std::map<Name, Entry> names_;
    std::unordered_map<uint64_t, Attributes> attributes_;
    std::unordered_map<uint64_t, Name> last_name_;  // of a node, of those in names_
    // of a node: references that the kernel has more than the server counts, or less
    std::unordered_map<uint64_t, int64_t> uncounted_;
    std::unordered_map<uint64_t, uint32_t> writing_;  // of a node: how many
    std::multimap<uint64_t, Offered> offered_;        // by node
    int64_t offers_end_ns_ = INT64_MAX;               // none of them before
    std::unordered_map<uint64_t, std::pair<fuse_statfs_out, int64_t>> statfs_;
    std::unordered_map<uint64_t, Open> opens_;                // by node; one of each
    std::unordered_map<uint64_t, uint64_t> open_of_;          // node by number of the open file
    std::list<std::pair<uint64_t, uint64_t>> unwanted_ = {};  // node, number
    std::vector<uint64_t> stale_;
};

}  // namespace souk::files
