// SPDX-License-Identifier: GPL-2.0-or-later
// InputWatch: somebody uses a terminal or an input device of this machine. The kernel tells
// (inotify) when a program has read what was typed or moved there: neither what that was, nor what
// a program prints. A job's terminals are of a devpts of its own and not among them. fd() is ready
// when there is something to take. Owned by one thread.
#pragma once

#include <map>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class InputWatch {
  public:
    enum class Which : uint8_t {
        local,  // keyboards, mice and terminals of the machine itself
        all     // pseudo-terminals as well: windows, ssh, screen
    };
    // Errors: this machine has none.
    static Result<InputWatch> open(Which which);
    int fd() const { return inotify_.get(); }
    // The device that was used since the last call; empty: none. Those that have come meanwhile are
    // watched from then on.
    std::string used();
    size_t devices() const { return devices_.size(); }

  private:
    explicit InputWatch(Which which) : which_(which) {}
    void look_for_devices();
    void add(const std::string& directory, bool (*is_one)(std::string_view));

    Which which_;
    Fd inotify_;
    std::map<int, std::string> devices_;  // by the number of the watch
};

}  // namespace souk
