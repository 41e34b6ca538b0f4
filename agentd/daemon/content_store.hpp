// SPDX-License-Identifier: GPL-2.0-or-later
// ContentStore: the process that keeps contents of programs on this node's disk for all jobs here
// (agentd/files/store.hpp). It is started for the first client and again when it dies, and ends
// with its agentd. Without it clients read everything from their homes. Owned by GuestFiles.
#pragma once

#include <functional>
#include <string>

#include "agentd/daemon/files_pump.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

struct ContentStoreOptions {
    std::string directory;   // is made, for root alone
    uint64_t bytes_max = 0;  // 0: none
    StartFiles start;
};

class ContentStore {
  public:
    // `again`: it is another; each client is to be given a socket of it.
    ContentStore(Loop& loop, Log& log, ContentStoreOptions options, std::function<void()> again)
        : loop_(loop), log_(log), options_(std::move(options)), again_(std::move(again)) {}
    // A socket for one more client; none: there is no store.
    Fd socket();

  private:
    Status start();
    void ended();

    Loop& loop_;
    Log& log_;
    const ContentStoreOptions options_;
    std::function<void()> again_;
    Pidfd process_;
    Fd control_;
    Watch watch_;
    Timer retry_;
};

}  // namespace souk
