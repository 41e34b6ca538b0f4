// SPDX-License-Identifier: GPL-2.0-or-later
// Starter: what souk-root does, one request at a time (requests.hpp). What comes with a request is
// looked at here: the kernel is asked what each descriptor is, and no name is followed. Which
// programs there are, and which CRIU, is not for agentd to say: they are this installation's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agentd/root/requests.hpp"
#include "checkpoint/criu.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::root {

class Starter {
  public:
    // `criu`: where CRIU is installed (find_criu).
    explicit Starter(const std::string& criu) : criu_(find_criu(criu)) {}
    struct Done {
        Told told;
        std::vector<Fd> descriptors;
    };
    Done take(std::string_view packet, const std::vector<Fd>& descriptors) const;

  private:
    Result<Done> start(const StartProgram& asked, const std::vector<int>& fds) const;
    Result<Done> start(const MakeCapsule& asked, const std::vector<int>& fds) const;
    Result<Done> start(const StartCriu& asked, const std::vector<int>& fds) const;

    const Result<CriuTool> criu_;  // an error is told to who asks for it
};

// Until the other end is gone. Reaps what it has started.
Status serve(const Starter& starter, int socket);

}  // namespace souk::root
