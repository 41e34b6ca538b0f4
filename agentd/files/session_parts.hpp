// SPDX-License-Identifier: GPL-2.0-or-later
// The parts of a Session, which answers the requests of one capsule's kernel: what is open
// (Handles), what may be used again until it is recalled (Leases), and those that do a group of
// requests each: SessionAttributes, SessionNames, SessionData, SessionLocks. Each owns what only it
// needs, and asks the others by reference. A Session owns them all. A request that is wrong is
// refused with EINVAL: every length, name, number and flag is checked here. One thread.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "agentd/files/locks.hpp"
#include "agentd/files/nodes.hpp"
#include "agentd/files/talk.hpp"
#include "agentd/files/watches.hpp"
#include "agentd/files/write_out.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

using Done = int;  // 0, or -errno

struct SessionLimits {
    size_t fds_max = 1024;   // of nodes
    size_t open_max = 1024;  // files that are open
    size_t nodes_max = 4 << 20;
    uint32_t trusted_s = 1;  // how long a name or an attribute is good without asking
};

// Holds the part of a request that is not read yet. Every take checks that the bytes are there.
class Words {
  public:
    explicit Words(ByteView bytes) : left_(bytes) {}
    template <class T>
    bool take(T& value) {
        if (left_.size() < sizeof value) return bad();
        __builtin_memcpy(&value, left_.data(), sizeof value);
        left_ = left_.subspan(sizeof value);
        return true;
    }
    // Takes a name with the zero that ends it: one name, which leads out of no directory.
    bool name(const char*& text);
    bool is_long() const { return long_; }  // it was a name, and too long for one
    bool text(const char*& text, size_t bytes_max);
    bool bytes(ByteView& data, size_t size);

  private:
    bool bad() {
        left_ = {};
        return false;
    }
    ByteView left_;
    bool long_ = false;
};

// Puts the bytes of a structure behind `out`.
template <class T>
void put(Bytes& out, const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
}

// The files that are open, by the number that the kernel of the job's machine calls each.
class Handles {
  public:
    struct Handle {
        Fd fd;
        uint64_t node = 0;
        bool directory = false;
        // Opened ahead for a job that moves, as it was for the last so many moves: nobody may have
        // taken it.
        unsigned unused_moves = 0;
        // of a directory: entries that were read and not given yet, and where the next lies
        Bytes entries;
        size_t at = 0;
        int64_t next = 0;
        WriteRun run;
    };

    explicit Handles(size_t open_max) : open_max_(open_max) {}
    const std::unordered_map<uint64_t, Handle>& all() const { return handles_; }
    // Null: there is none, or it is none of that kind. Found, it is in use.
    Handle* find(uint64_t number, bool directory);
    // The descriptor of either kind; -1: there is none.
    int fd_of(uint64_t number) const;
    // Answers an open. A close asks nothing (FOPEN_NOFLUSH): what was written is at home, and what
    // a mapping holds goes there when it ends. A client that has to hear of closes changes that
    // (hear_close). ENFILE: too many are open.
    Done put(Handle handle, uint32_t flags, Bytes& out);
    bool close(uint64_t number) { return handles_.erase(number) == 1; }
    // It was opened ahead, as the answer to an open says.
    void note_ahead(ByteView answer, unsigned unused_moves);

  private:
    const size_t open_max_;
    uint64_t next_ = first_number();
    std::unordered_map<uint64_t, Handle> handles_;
};

// Which answers may be used again until they are recalled, which is when the server's Watches tell.
class Leases {
  public:
    Leases(Nodes& nodes, Watches* watches, uint64_t session)
        : nodes_(nodes), watches_(watches, session) {}
    // The lease of the answer to the present request.
    Lease granted() const { return granted_; }
    void grant(Lease lease) { granted_ = lease; }
    // Tell whether changes of the entries of a directory, or of a file in it, are told from now on.
    bool is_watched(uint64_t directory);
    bool is_watched_file(uint64_t id);
    // Says as what a node's answer is leased.
    Lease kind_of(uint64_t id);

  private:
    Nodes& nodes_;
    SessionWatches watches_;
    Lease granted_ = Lease::none;
};

// Opens a node that may be opened, to read or write. `proc` is /proc/self/fd.
int open_node(Nodes& nodes, int proc, uint64_t id, int flags, Fd& fd);

// Answers what is asked of a file, and changes it: mode, owner, times, extended attributes.
class SessionAttributes {
  public:
    SessionAttributes(const Export& tree, uint32_t trusted_s, int proc, Nodes& nodes,
                      Handles& handles, Leases& leases)
        : tree_(tree),
          trusted_s_(trusted_s),
          proc_(proc),
          nodes_(nodes),
          handles_(handles),
          leases_(leases),
          shown_uid_(tree.uid),
          shown_gid_(tree.gid) {}
    // Files of the server's user are shown as that user's.
    void shown_as(uint32_t uid, uint32_t gid) { shown_uid_ = uid, shown_gid_ = gid; }
    uint32_t shown_uid() const { return shown_uid_; }
    uint32_t trusted_s() const { return trusted_s_; }  // for how long they are good
    Done run(const fuse_in_header& head, Words& words, Bytes& out);
    // Writes the attributes of that node into `attr`, and notes that the kernel has been told them.
    void put_into(uint64_t id, const struct statx& st, fuse_attr& attr);

  private:
    void put_answer(uint64_t id, const struct statx& st, Bytes& out);
    Done get(uint64_t id, Words& words, Bytes& out);
    Done set(uint64_t id, Words& words, Bytes& out);
    Done set_some(uint64_t id, const fuse_setattr_in& in);
    Done access(uint64_t id, Words& words);
    Done statistics(uint64_t id, Bytes& out);
    Done set_extended(uint64_t id, Words& words);
    Done get_extended(uint64_t id, Words& words, Bytes& out);
    Done list_extended(uint64_t id, Words& words, Bytes& out);
    Done remove_extended(uint64_t id, Words& words);

    const Export& tree_;
    const uint32_t trusted_s_;
    const int proc_;
    Nodes& nodes_;
    Handles& handles_;
    Leases& leases_;
    uint32_t shown_uid_, shown_gid_;
};

// Makes, finds, moves and removes names, and lists them.
class SessionNames {
  public:
    SessionNames(int proc, Nodes& nodes, Handles& handles, Leases& leases,
                 SessionAttributes& attributes)
        : proc_(proc), nodes_(nodes), handles_(handles), leases_(leases), attributes_(attributes) {}
    Done run(const fuse_in_header& head, Words& words, Bytes& out);

  private:
    Done lookup(uint64_t parent, const char* name, Bytes& out);
    Done make(const fuse_in_header& head, Words& words, Bytes& out);
    Done link_to(uint64_t parent, Words& words, Bytes& out);
    Done remove_name(uint64_t parent, Words& words, int flags);
    Done rename(const fuse_in_header& head, Words& words);
    Done create(uint64_t parent, Words& words, Bytes& out);
    Done make_nameless(uint64_t parent, Words& words, Bytes& out);
    Done put_entry(uint64_t parent, const char* name, Bytes& out);
    Done read_link(uint64_t id, Bytes& out);
    Done read_directory(Words& words, bool plus, Bytes& out);
    bool put_dirent(Handles::Handle& h, bool plus, size_t end, Bytes& out);
    static Done fill(Handles::Handle& h);

    const int proc_;
    Nodes& nodes_;
    Handles& handles_;
    Leases& leases_;
    SessionAttributes& attributes_;
};

// Reads and writes files that are open.
class SessionData {
  public:
    SessionData(Nodes& nodes, Handles& handles) : nodes_(nodes), handles_(handles) {}
    Done run(const fuse_in_header& head, Words& words, Bytes& out);

  private:
    Done read(Words& words, Bytes& out);
    Done write(Words& words, Bytes& out);
    Done sync(Words& words);
    Done allocate(Words& words);
    Done seek(Words& words, Bytes& out);
    Done copy(Words& words, Bytes& out);

    Nodes& nodes_;
    Handles& handles_;
    WriteOut write_out_;
};

// Locks of files, and the closes that let them go. The server has the locks of all sessions
// (locks.hpp); null: it takes none.
class SessionLocks {
  public:
    SessionLocks(Locks* locks, uint64_t session, Nodes& nodes, Handles& handles)
        : locks_(locks), session_(session), nodes_(nodes), handles_(handles) {}
    // Begins a request, by whose number one that waits for a lock gets its answer later; 0: none
    // waits.
    void begin(uint64_t seq);
    Done run(const fuse_in_header& head, Words& words, Bytes& out);
    // The present request waits for a lock, and has no answer yet.
    bool waits() const { return waits_; }
    // It has granted a lock, and others may have written to the file.
    bool file_has_changed() const { return file_has_changed_; }

  private:
    struct Asked {
        fuse_lk_in in{};
        const Handles::Handle* handle = nullptr;
        const Node* node = nullptr;
    };
    int read_lock(const fuse_in_header& head, Words& words, Asked& asked);
    Done get(const fuse_in_header& head, Words& words, Bytes& out);
    Done set(const fuse_in_header& head, Words& words);
    Done flush(const fuse_in_header& head, Words& words);
    Done release(Words& words);
    Done interrupt(Words& words);

    Locks* const locks_;
    const uint64_t session_;
    Nodes& nodes_;
    Handles& handles_;
    uint64_t seq_ = 0;
    bool waits_ = false, file_has_changed_ = false;
};

}  // namespace souk::files
