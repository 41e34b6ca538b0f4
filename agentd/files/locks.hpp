// SPDX-License-Identifier: GPL-2.0-or-later
// Locks: what the processes of a job hold of files at home (fcntl(2), flock(2)), wherever they run.
// The server of the job holds each for its holder by an open file description of its own, as a lock
// of the home's kernel. So it counts against programs at home and against other jobs.
//
// A holder is what the kernel of the job's machine calls by a number: a process (POSIX locks) or an
// open file. When the job moves, the numbers become others. What the holder has is then given a
// name (`mark`), and the restored one says that name (`adopt`): the description changes its holder,
// and no lock is let go. Meanwhile the session of the node that it leaves is on hold: its files are
// closed, since its processes end, and that lets nothing go. CRIU's preload says all of this, in
// words of kernel/sys/store/served_locks.h.
//
// At home the files are the node's own, so the processes hold their locks themselves, and souk-root
// keeps them meanwhile. Such locks come and go by a door (kernel/sys/net/lock_door.hpp).
//
// SQLite's mapped index (served_locks.h) only processes of one kernel may have. Who asks for its
// byte gets a lock of a file of the server's own, which all of the job ask for, and the job has the
// byte at home alone meanwhile.
//
// A request that waits has a thread of its own, in the kernel's own queue. The description by which
// it waits is the holder's, also when another thread of the holder closes the file meanwhile, which
// lets go of what the holder has. Owned by Server; one thread but for these.
#pragma once

#include <linux/fuse.h>
#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk::files {

class LockWait;

class Locks {
  public:
    static constexpr size_t waits_max = 96, held_max = 4096;
    // A question's answer: 0, -errno, or that it comes later.
    static constexpr int comes_later = 1;

    struct Holder {
        uint64_t session = 0, device = 0, inode = 0, owner = 0;
        bool flock = false;
        bool index = false;  // the byte of a mapped index
        auto operator<=>(const Holder&) const = default;
    };
    // The open file by which it is asked for, and its number in the session.
    struct Opened {
        int fd = -1;
        uint64_t number = 0;
    };
    // A request that waited has its answer.
    struct Ended {
        uint64_t session = 0, seq = 0, unique = 0;
        int error = 0;
    };

    // The holder's locks in a range before it got that one.
    struct Before {
        uint32_t by = 0;  // undo_number() of the request
        fuse_file_lock range{};
        std::vector<fuse_file_lock> parts;
        uint64_t order = 0;  // of the requests
    };

    // `user` is who the job is at home.
    explicit Locks(uint32_t user);
    Locks(const Locks&) = delete;
    Locks& operator=(const Locks&) = delete;
    ~Locks();

    // Takes the lock, or lets it go. `seq` and `unique` are the request's numbers, to wait by;
    // seq 0: it does not wait.
    int set(const Holder& holder, const Opened& opened, const fuse_file_lock& range, uint64_t seq,
            uint64_t unique);
    // Nobody has heard that it got that lock: it has again what it had there before.
    int undo(const Holder& holder, const fuse_file_lock& range, uint32_t by);
    // Says who else holds a lock there, or answers a question of served_locks.h.
    int get(const Holder& holder, const Opened& opened, fuse_file_lock& range);
    // The job has that mapped index alone.
    bool has_index(uint64_t device, uint64_t inode) const {
        return indexes_.contains({device, inode});
    }
    // A process has closed the file, or nobody has that open file any more.
    void closed(const Holder& holder);
    void released(uint64_t session, uint64_t number);
    // Nobody waits for the answer to that request any more.
    void interrupt(uint64_t session, uint64_t unique);
    // The session is over.
    void left(uint64_t session);
    bool waits(uint64_t session, uint64_t seq) const;
    // Somebody may ask there for what is named; -1: nothing is.
    int door() const { return door_.get(); }
    void answer_at_door() const;
    // Readable when some that waited have their answers.
    int fd() const { return event_.get(); }
    std::vector<Ended> take_ended();
    // Some threads are to end: take_ended() is to be called again soon.
    bool is_ending() const;
    size_t held() const { return held_.size(); }

  private:
    struct Held {
        Fd fd;
        uint64_t number = 0;  // of the open file by which it was taken last
        uint64_t used = 0;    // of the open file whose description it is; 0: of none
        uint64_t secret = 0;  // its name, with `index`
        uint32_t index = 0;
        std::vector<Before> befores;  // of the newest locks
        void add(Before before);
    };
    using All = std::map<Holder, Held>;
    // A mapped index that the job has alone: by the file's own description, and what its processes
    // lock in place of it.
    struct Index {
        Fd file, stands_in;
    };
    using Indexes = std::map<std::pair<uint64_t, uint64_t>, Index>;

    int description(const Holder& holder, const Opened& opened, int type);
    All::iterator find(const Holder& holder);
    int wait(const Holder& holder, Before before, uint64_t seq, uint64_t unique);
    void end(LockWait& wait);
    void note(const Holder& holder, const fuse_file_lock& change,
              const LockWait* granted = nullptr);
    std::vector<fuse_file_lock> noted_parts(const Holder& holder, int fd,
                                            const fuse_file_lock& range) const;
    int reopen(const Opened& opened, Held& held) const;
    bool is_used(const Holder& holder, uint64_t number) const;
    int answer(uint32_t question, const Holder& holder, const Opened& opened,
               fuse_file_lock& range);
    bool adopt(const Holder& holder, const Opened& opened, uint64_t secret, uint32_t index);
    void fetch(uint64_t secret);
    int index_description(const Holder& holder, const Opened& opened);
    void end_indexes();
    void name(Held& held, uint64_t secret, uint32_t index);
    void let_others_go(uint64_t session, bool all);
    All::iterator let_go(All::iterator one);

    All held_;
    Indexes indexes_;
    std::set<uint64_t> on_hold_, left_;  // sessions
    std::list<std::unique_ptr<LockWait>> waits_;
    const uint32_t user_;
    Fd event_, door_;
    uint64_t secret_ = 0;  // of the door
    uint64_t orders_ = 0;
};

}  // namespace souk::files
