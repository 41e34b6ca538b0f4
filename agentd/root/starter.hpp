// SPDX-License-Identifier: GPL-2.0-or-later
// Starter: what souk-root does, one request at a time (requests.hpp). What comes with a request is
// looked at here: the kernel is asked what each descriptor is, and no name is followed. Which
// programs there are, and which CRIU, is not for agentd to say: they are this installation's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agentd/root/own_user.hpp"
#include "agentd/root/requests.hpp"
#include "checkpoint/criu.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::root {

class Starter {
  public:
    // `criu`: where CRIU is installed (find_criu). The files: what tells agentd's status, its
    // configuration, and who users are (user_map); empty: there is none. `user`: who agentd is.
    struct Files {
        std::string status, configuration, users;
    };
    Starter(const std::string& criu, Files files, AgentUser user)
        : criu_(find_criu(criu)), files_(std::move(files)), user_(user) {}
    struct Answer {
        Told told;
        std::vector<Fd> descriptors;
    };
    Answer take(std::string_view packet, const std::vector<Fd>& descriptors);

  private:
    Result<Answer> start(const StartProgram& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const MakeCapsule& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const StartCriu& asked, const std::vector<int>& fds) const;
    static Result<Answer> start(const OpenFile& asked, const std::vector<int>& fds);
    static Result<Answer> start(const OpenNetwork& asked, const std::vector<int>& fds);
    static Result<Answer> start(const TakeDescriptor& asked, const std::vector<int>& fds);
    Result<Answer> start(const SettleSockets& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const PutStatus& asked, const std::vector<int>& fds) const;
    static Result<Answer> start(const OpenDirectory& asked, const std::vector<int>& fds);
    static Result<Answer> start(const LookInside& asked, const std::vector<int>& fds);
    static Result<Answer> start(const FitRestored& asked, const std::vector<int>& fds);
    static Result<Answer> start(const AskWaits& asked, const std::vector<int>& fds);
    static Result<Answer> start(const EndProcess& asked, const std::vector<int>& fds);
    Result<Answer> start(const ConnectInit& asked, const std::vector<int>& fds) const;
    static Result<Answer> start(const OpenOfMachine& asked, const std::vector<int>& fds);
    static Result<Answer> start(const OpenEvent& asked, const std::vector<int>& fds);
    Result<Answer> start(const GiveFiles& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const LearnKernel& asked, const std::vector<int>& fds);
    static Result<Answer> start(const AddInputs& asked, const std::vector<int>& fds);
    Result<Answer> start(const OpenOwnFile& asked, const std::vector<int>& fds) const;

    const Result<CriuTool> criu_;  // an error is told to who asks for it
    std::string criu_facts_;       // of this kernel
    const Files files_;
    const AgentUser user_;
};

// Until the other end is gone. Reaps what it has started.
Status serve(Starter& starter, int socket);

}  // namespace souk::root
