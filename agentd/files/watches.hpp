// SPDX-License-Identifier: GPL-2.0-or-later
// Watches: which directories of its sessions the kernel of the home tells changes of (inotify), so
// that what was said of the files there may be used again until it is recalled. A directory of a
// file system that other machines change, too, cannot be watched. A session has a number of
// watches: the oldest goes for a newer one, and is told as a change. A user has few instances (128,
// fs.inotify.max_user_instances): all sessions of a server share one, and where there is none left,
// nothing is watched, and the server does without. Owned by the Server.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk::files {

class Watches {
  public:
    // An instance that counts as `user`'s; none where there is none left.
    static Fd make_instance(uid_t user);
    explicit Watches(Fd instance, size_t watches_max = 8192)
        : inotify_(std::move(instance)), watches_max_(watches_max) {}
    int fd() const { return inotify_.get(); }  // -1: there is none
    // Tells whether `read` has something to say when that file (O_PATH) loses its name.
    bool watch_name(int file);

    // `directory`: an O_PATH descriptor. True: changes from now on are told.
    bool watch(uint64_t session, uint64_t node, int directory);
    void leave(uint64_t session);
    struct Change {
        uint64_t session = 0;
        uint64_t directory = 0;  // 0: anything
        std::string name;        // none: all there
        bool stays = false;      // it names the same file as before
        bool operator==(const Change&) const = default;
    };
    // Gets each change, once for each session that watches it.
    using Changed = std::function<void(const Change&)>;
    // Reads events. True: something was read, which may concern watch_name.
    bool read(const Changed& changed);
    size_t count() const { return by_watch_.size(); }

  private:
    using Watcher = std::pair<uint64_t, uint64_t>;  // session, node
    struct Own {
        std::unordered_map<uint64_t, int> by_node;
        std::deque<uint64_t> order;  // of its nodes, the oldest first; some may be gone
    };
    void tell(int watch, bool over, bool stays, const std::string& name, const Changed& changed);
    void drop(uint64_t session, int number);
    void drop_oldest(uint64_t session, Own& own);

    Fd inotify_;
    const size_t watches_max_;  // of a session
    std::unordered_map<uint64_t, Own> by_session_;
    std::unordered_map<int, std::vector<Watcher>> by_watch_;
    std::vector<Watcher> dropped_;  // for newer ones; nobody has been told yet
};

// Holds the watches of one session.
class SessionWatches {
  public:
    SessionWatches(Watches* all, uint64_t session) : all_(all), session_(session) {}
    SessionWatches(const SessionWatches&) = delete;
    SessionWatches& operator=(const SessionWatches&) = delete;
    ~SessionWatches() {
        if (all_) all_->leave(session_);
    }
    bool watch(uint64_t node, int directory) {
        return all_ && all_->watch(session_, node, directory);
    }

  private:
    Watches* all_;
    uint64_t session_;
};

}  // namespace souk::files
