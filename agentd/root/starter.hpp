// SPDX-License-Identifier: GPL-2.0-or-later
// Starter: what souk-root does, one request at a time (requests.hpp). What comes with a request is
// looked at here: the kernel is asked what each descriptor is, and no name is followed. Which
// programs there are, and which CRIU, is not for agentd to say: they are this installation's. As
// whom they run is Who's to say (agentd/who).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/root/capsules.hpp"
#include "agentd/root/locks.hpp"
#include "agentd/root/own_user.hpp"
#include "agentd/root/ports.hpp"
#include "agentd/root/requests.hpp"
#include "agentd/who/who.hpp"
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
    // `network`: of this node, for its jobs.
    Starter(const std::string& criu, Files files, AgentUser user, who::Who who,
            std::optional<JobNetwork> network)
        : criu_(find_criu(criu)),
          files_(std::move(files)),
          user_(user),
          who_(std::move(who)),
          network_(std::move(network)) {}
    struct Answer {
        Told told;
        std::vector<Fd> descriptors;
    };
    Ports& ports() { return ports_; }
    Locks& locks() { return locks_; }
    Answer take(std::string_view packet, const std::vector<Fd>& descriptors);
    // Somebody has connected to the socket of the tools, by the kernel's word.
    Status connected(const RunsAs& user) {
        return user_ && user.uid == user_.uid ? Status{} : who_.connected(user);
    }

  private:
    Result<Answer> start(const StartProgram& asked, const std::vector<int>& fds);
    Result<Answer> start(const MakeCapsule& asked, const std::vector<int>& fds);
    Result<Answer> start(const StartCriu& asked, const std::vector<int>& fds);
    Result<Answer> start(const OpenFile& asked, const std::vector<int>& fds);
    Result<Answer> start(const TakeDescriptor& asked, const std::vector<int>& fds);
    Result<Answer> start(const SettleSockets& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const PutStatus& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const OpenDirectory& asked, const std::vector<int>& fds);
    Result<Answer> start(const LookInside& asked, const std::vector<int>& fds);
    Result<Answer> start(const FitRestored& asked, const std::vector<int>& fds);
    Result<Answer> start(const AskWaits& asked, const std::vector<int>& fds);
    Result<Answer> start(const AskLoaded& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const EndProcess& asked, const std::vector<int>& fds);
    Result<Answer> start(const ConnectInit& asked, const std::vector<int>& fds);
    static Result<Answer> start(const OpenOfMachine& asked, const std::vector<int>& fds);
    static Result<Answer> start(const OpenEvent& asked, const std::vector<int>& fds);
    Result<Answer> start(const GiveFiles& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const LearnKernel& asked, const std::vector<int>& fds);
    static Result<Answer> start(const AddInputs& asked, const std::vector<int>& fds);
    Result<Answer> start(const OpenOwnFile& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const AdoptUsers& asked, const std::vector<int>& fds);
    Result<Answer> start(const KeepPackets& asked, const std::vector<int>& fds);
    Result<Answer> start(const SeePacketsOfAll& asked, const std::vector<int>& fds) const;
    Result<Answer> start(const MakePort& asked, const std::vector<int>& fds);
    Result<Answer> start(const ArmPort& asked, const std::vector<int>& fds);
    Result<Answer> start(const ActOnPort& asked, const std::vector<int>& fds);
    Result<Answer> start(const HoldFrames& asked, const std::vector<int>& fds);
    Result<Answer> start(const FeedFrames& asked, const std::vector<int>& fds);
    Result<Answer> start(const TellHeld& asked, const std::vector<int>& fds);
    Result<Answer> start(const ReleaseFrames& asked, const std::vector<int>& fds);
    Result<Answer> start(const SayFrames& asked, const std::vector<int>& fds);
    Result<Answer> start(const EndRepair& asked, const std::vector<int>& fds);

    const Result<CriuTool> criu_;  // an error is told to who asks for it
    std::string criu_facts_;       // of this kernel
    const Files files_;
    const AgentUser user_;
    who::Who who_;
    Capsules capsules_;
    Locks locks_;
    const std::optional<JobNetwork> network_;
    Ports ports_;
    std::optional<std::vector<Fd>> packets_;  // programs
};

// The socket that tools connect to, and where agentd gets each connection, as a packet of one byte.
struct Door {
    int listener = -1, agentd = -1;
};
// Serves until the other end is gone, and reaps what it has started.
Status serve(Starter& starter, int socket, Door door);

}  // namespace souk::root
