// SPDX-License-Identifier: GPL-2.0-or-later
// Session: the FUSE requests of one capsule's kernel, done at home with the rights of the process
// that it runs in, which are the job's user's. The requests come from another machine: every
// length, name, number and flag is checked here, and what is wrong is refused with EINVAL. What it
// may not do the kernel of the home refuses, as it would refuse the user's own program.
//
// Only regular files and directories are ever opened. Devices, FIFOs and sockets are names at home:
// what they do, they do in the kernel where the job runs. Locks are the server's (locks.hpp).
// Owned by the server; one thread.
#pragma once

#include <linux/fuse.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "agentd/files/contents.hpp"
#include "agentd/files/locks.hpp"
#include "agentd/files/nodes.hpp"
#include "agentd/files/talk.hpp"
#include "agentd/files/watches.hpp"
#include "agentd/files/write_out.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

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

class Session {
  public:
    // `watches` are those of its server, which tells them changes by this `number`; null: none. So
    // are `locks`; null: it takes none.
    Session(const Export& tree, const SessionLimits& limits, Watches* watches = nullptr,
            uint64_t number = 0, Locks* locks = nullptr);
    // Sets the user that the job has where it runs. Files of the server's user are shown as that
    // user's.
    void shown_as(uint32_t uid, uint32_t gid) { shown_uid_ = uid, shown_gid_ = gid; }
    // `request` is a fuse_in_header and what follows it. The answer (a fuse_out_header and what
    // follows it) is put behind what `out` holds; nothing, if the request has no answer. `seq` is
    // the request's number, by which one that waits for a lock gets its answer later; 0: none
    // waits.
    void handle(ByteView request, Bytes& out, uint64_t seq = 0);
    // The last request waits for a lock, and has no answer yet.
    bool waits_for_lock() const { return waits_for_lock_; }
    // The last answer may be used again until it is recalled, which is when `watches` tell.
    Lease leased() const { return leased_; }
    // The last answer was to an open, and the file is not as its attributes were told last; or it
    // granted a lock, and others may have written to the file.
    bool file_has_changed() const { return file_has_changed_; }
    Contents& contents() { return contents_; }
    // The job of that session has programs open that will be opened here, because it moves. `other`
    // may be this session: they were opened before the client could be told of contents.
    void expect_contents_of(Session& other);
    // Looks up and opens what the job of that session has open, because it may soon be opened here.
    // `told` gets each request that the client would make, with its answer; it returns false to end
    // this.
    using Told = std::function<bool(ByteView request, ByteView answer, Lease lease)>;
    void open_as(Session& other, const Told& told);
    size_t open_files() const { return handles_.size(); }
    const Nodes& nodes() const { return nodes_; }

  private:
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
    class Moves;       // session_moves.cpp
    using Done = int;  // 0, or -errno

    Done run(const fuse_in_header& head, Words& words, Bytes& out);
    Done run_names(const fuse_in_header& head, Words& words, Bytes& out);
    Done run_data(const fuse_in_header& head, Words& words, Bytes& out);
    Done run_attributes(const fuse_in_header& head, Words& words, Bytes& out);

    // session_names.cpp
    Done lookup(uint64_t parent, const char* name, Bytes& out);
    Done make(const fuse_in_header& head, Words& words, Bytes& out);
    Done link_to(uint64_t parent, Words& words, Bytes& out);
    Done remove_name(uint64_t parent, Words& words, int flags);
    Done rename(const fuse_in_header& head, Words& words);
    Done create(uint64_t parent, Words& words, Bytes& out);
    Done make_nameless(uint64_t parent, Words& words, Bytes& out);
    // Tell whether changes of the entries of a directory, or of a file in it, are told from now on.
    bool is_watched(uint64_t directory);
    bool is_watched_file(uint64_t id);
    Lease lease_of(uint64_t id);
    Done put_entry(uint64_t parent, const char* name, Bytes& out);
    Done read_link(uint64_t id, Bytes& out);
    Done read_directory(Words& words, bool plus, Bytes& out);
    bool put_dirent(Handle& h, bool plus, size_t end, Bytes& out);
    Done fill(Handle& h);

    // session_data.cpp
    Done open(const fuse_in_header& head, Words& words, Bytes& out);
    Done read(Words& words, Bytes& out);
    Done write(Words& words, Bytes& out);
    Done release(Words& words);
    Done sync(Words& words);
    Done allocate(Words& words);
    Done seek(Words& words, Bytes& out);
    Done copy(Words& words, Bytes& out);
    Done put_handle(Handle handle, uint32_t flags, Bytes& out);
    Handle* handle(uint64_t number, bool directory);
    // A descriptor to read or write with, of a node that may be opened.
    int open_node(uint64_t id, int flags, Fd& fd);
    void opened_ahead(ByteView answer, unsigned unused_moves);

    // session_locks.cpp
    struct LockAsked {
        fuse_lk_in in{};
        const Handle* handle = nullptr;
        const Node* node = nullptr;
    };
    int read_lock(const fuse_in_header& head, Words& words, LockAsked& asked);
    Done get_lock(const fuse_in_header& head, Words& words, Bytes& out);
    Done set_lock(const fuse_in_header& head, Words& words);
    Done flush(const fuse_in_header& head, Words& words);

    // session_attributes.cpp
    Done attributes(uint64_t id, Words& words, Bytes& out);
    Done set_attributes(uint64_t id, Words& words, Bytes& out);
    Done set_some(uint64_t id, const fuse_setattr_in& in);
    Done access(uint64_t id, Words& words);
    Done statistics(uint64_t id, Bytes& out);
    Done set_extended(uint64_t id, Words& words);
    Done get_extended(uint64_t id, Words& words, Bytes& out);
    Done list_extended(uint64_t id, Words& words, Bytes& out);
    Done remove_extended(uint64_t id, Words& words);
    // Writes the attributes of that node into `attr`, and notes that the kernel has been told them.
    void put_attributes(uint64_t id, const struct statx& st, fuse_attr& attr);
    void put_attributes_of(uint64_t id, const struct statx& st, Bytes& out);

    const SessionLimits limits_;
    const Export& tree_;
    Nodes nodes_;
    SessionWatches watches_;
    Contents contents_;
    WriteOut write_out_;
    Lease leased_ = Lease::none;
    bool file_has_changed_ = false;
    const uint64_t number_;
    Locks* const locks_;
    uint64_t seq_ = 0;  // of the present request
    bool waits_for_lock_ = false;
    Fd proc_;  // /proc/self/fd
    std::unordered_map<uint64_t, Handle> handles_;
    uint64_t next_handle_ = first_number();
    uint32_t shown_uid_, shown_gid_;
};

// Puts the bytes of a structure behind `out`.
template <class T>
void put(Bytes& out, const T& value) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof value);
}

}  // namespace souk::files
