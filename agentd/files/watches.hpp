// SPDX-License-Identifier: GPL-2.0-or-later
// Watches: which directories of a session the kernel of the home tells changes of (inotify), so
// that what was said of the files there may be used again until it is recalled. A directory of a
// file system that other machines change, too, cannot be watched. Owned by a Session.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>

#include "kernel/sys/host/fd.hpp"

namespace souk::files {

class Watches {
  public:
    Watches();
    int fd() const { return inotify_.get(); }  // -1: there are none
    // `directory`: an O_PATH descriptor. True: changes from now on are told.
    bool watch(uint64_t node, int directory);
    // What has changed: a name in a directory; no name: all there; no directory (0): anything.
    void read(const std::function<void(uint64_t directory, const std::string& name)>& changed);

  private:
    static constexpr size_t watches_max = 8192;
    Fd inotify_;
    std::unordered_map<uint64_t, int> by_node_;
    std::unordered_map<int, uint64_t> by_watch_;
};

}  // namespace souk::files
