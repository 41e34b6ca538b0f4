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

#include <cstdint>
#include <functional>

#include "agentd/files/contents.hpp"
#include "agentd/files/session_parts.hpp"

namespace souk::files {

class Session {
  public:
    // `watches` are those of its server, which tells them changes by this `number`; null: none. So
    // are `locks`; null: it takes none.
    Session(const Export& tree, const SessionLimits& limits, Watches* watches = nullptr,
            uint64_t number = 0, Locks* locks = nullptr);
    // Sets the user that the job has where it runs. Files of the server's user are shown as that
    // user's.
    void shown_as(uint32_t uid, uint32_t gid) { attributes_.shown_as(uid, gid); }
    // `request` is a fuse_in_header and what follows it. The answer (a fuse_out_header and what
    // follows it) is put behind what `out` holds; nothing, if the request has no answer. `seq` is
    // the request's number, by which one that waits for a lock gets its answer later; 0: none
    // waits.
    void handle(ByteView request, Bytes& out, uint64_t seq = 0);
    // The last request waits for a lock, and has no answer yet.
    bool waits_for_lock() const { return locks_.waits(); }
    // The last answer may be used again until it is recalled, which is when `watches` tell.
    Lease leased() const { return leases_.granted(); }
    // The last answer was to an open, and the file is not as its attributes were told last; or it
    // granted a lock, and others may have written to the file.
    bool file_has_changed() const { return opened_changed_ || locks_.file_has_changed(); }
    Contents& contents() { return contents_; }
    // The job of that session has programs open that will be opened here, because it moves. `other`
    // may be this session: they were opened before the client could be told of contents.
    void expect_contents_of(Session& other);
    // Looks up and opens what the job of that session has open, because it may soon be opened here.
    // `told` gets each request that the client would make, with its answer; it returns false to end
    // this.
    using Told = std::function<bool(ByteView request, ByteView answer, Lease lease)>;
    void open_as(Session& other, const Told& told);
    size_t open_files() const { return handles_.all().size(); }
    const Nodes& nodes() const { return nodes_; }

  private:
    class Moves;  // session.cpp

    Done run(const fuse_in_header& head, Words& words, Bytes& out);
    Done open(const fuse_in_header& head, Words& words, Bytes& out);

    const Export& tree_;
    const Fd proc_;  // /proc/self/fd
    Nodes nodes_;
    Handles handles_;
    Leases leases_;
    SessionAttributes attributes_;
    SessionNames names_;
    SessionData data_;
    SessionLocks locks_;
    Contents contents_;
    bool opened_changed_ = false;  // file_has_changed() of an open
};

}  // namespace souk::files
