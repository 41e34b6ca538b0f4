// SPDX-License-Identifier: GPL-2.0-or-later
// InputWatch: somebody uses a terminal or an input device of this machine. The kernel tells
// (inotify) when a program has read what was typed or moved there: neither what that was, nor what
// a program prints. A job's terminals are of a devpts of its own and not among them. fd() is ready
// when there is something to take. Owned by one thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// The devices that are there, watched by an inotify instance that is given. Needs the right to read
// them: who has it does this for a daemon that has not.
struct WatchedInput {
    int number = 0;  // of the watch; of one that was watched already it is the same
    std::string path;
};
// pseudo: also pseudo-terminals.
std::vector<WatchedInput> watch_inputs(int inotify, bool pseudo);
using WatchInputs = std::function<Result<std::vector<WatchedInput>>(int inotify, bool pseudo)>;

class InputWatch {
  public:
    enum class Which : uint8_t {
        local,  // keyboards, mice and terminals of the machine itself
        all     // pseudo-terminals as well: windows, ssh, screen
    };
    // Errors: this machine has none.
    static Result<InputWatch> open(Which which, WatchInputs add = watch_inputs);
    int fd() const { return inotify_.get(); }
    // The device that was used since the last call; empty: none. Those that have come meanwhile are
    // watched from then on.
    std::string used();
    size_t devices() const { return devices_.size(); }

  private:
    InputWatch(Which which, WatchInputs add) : which_(which), add_(std::move(add)) {}
    void look_for_devices();

    Which which_;
    WatchInputs add_;
    Fd inotify_;
    std::map<int, std::string> devices_;  // by the number of the watch
};

}  // namespace souk
