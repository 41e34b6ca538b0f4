// SPDX-License-Identifier: GPL-2.0-or-later
// Ports: the interfaces of jobs that souk-root has made or found for agentd, and what it holds of
// their frames. For each of them agentd has one end of a socket open, which says which one it
// means and nothing else; it ends when agentd has closed that. So whose interface it is was looked
// at once, when it came, and is not asked again. Bounded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/net/local_port.hpp"

namespace souk::root {

class Ports {
  public:
    // Agentd's end.
    Result<Fd> add(std::unique_ptr<LocalPort> port);
    // Does that with the one that it stands for.
    Status with(int end, const std::function<Status(PortWork&)>& f);
    // Readable: something came for one, or one has ended. Then look(). -1: there was none yet.
    int fd() const { return events_.get(); }
    void look();

  private:
    struct Port {
        std::unique_ptr<LocalPort> work;
        Fd end;                    // ours
        std::vector<int> awaited;  // of work
    };
    void wait_for(uint64_t number, Port& port) const;
    void forget_frames(Port& port) const;

    Fd events_;                       // epoll
    std::map<uint64_t, Port> ports_;  // by what the kernel calls agentd's end, once and for all
};

}  // namespace souk::root
