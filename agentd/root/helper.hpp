// SPDX-License-Identifier: GPL-2.0-or-later
// Helper: agentd's end of souk-root, which starts every process for it: capsules, CRIU, and the
// programs beside it. So what agentd gives up, and what its own calls are limited to
// (kernel/sys/process/own_rights.hpp), no job and no CRIU inherits. A request waits for its answer,
// as the system calls did that it stands for. Owned by main; outlives the Agent.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agentd/root/own_user.hpp"
#include "agentd/root/requests.hpp"
#include "agentd/who/rules.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "kernel/sys/host/device.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/input_watch.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/packet_sight.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk::root {

class Helper {
  public:
    // `lost`, once: it has ended, or does not answer. Nothing can be started from then on.
    using Lost = std::function<void(const std::string& why)>;
    Helper(Loop& loop, Lost lost) : loop_(loop), lost_(std::move(lost)) {}
    // Starts souk-root, before anything is read from the network. `criu` says where CRIU is
    // installed, `status_file` what put_status() writes (empty: none). `own` says who this daemon
    // is about to be, and what is then his. If the error is that he cannot have it, start once more
    // as root.
    struct Own {
        std::string configuration, users;  // files
        AgentUser user;
        AgentPlace place;
        who::Rules rules;  // for whom it starts processes
        std::optional<JobNetwork> network;
        int tools = -1;  // listens where tools connect
    };
    Status start(const std::string& criu, const std::string& status_file = {},
                 const std::optional<Own>& own = {});

    Result<Pidfd> program(Program program, const std::vector<std::string>& words,
                          const std::vector<int>& fds, bool session);
    // Makes a capsule for a job that began here (`own`), or that its home has brought with that
    // ticket.
    Result<Capsule> capsule(const CapsuleOptions& options, bool own, std::string_view ticket);
    Result<Pidfd> criu(const CriuLaunch& how);
    std::function<bool(const Pidfd& criu)> criu_loaded();  // CriuTool::loaded
    EndProgram end();                                      // of what it has started
    Reach reach();
    Status put_status(std::string_view text);
    // Reads a file: the configuration and the map of users as root, another one as this process
    // may.
    Result<std::string> read(const std::string& path);
    OpenDevice devices();
    OpenCpuEvent cpu_events();
    // The programs that see_packets() lets run, or none; once, and for good.
    Status keep_packets(const std::vector<int>& programs);
    SeePackets see_packets();
    WatchInputs inputs();
    std::function<Status(const Pidfd& init)> learn();
    // Names the users who have jobs on this node already. This counts at the node's first start
    // alone.
    Status adopt(const std::vector<RunsAs>& users);
    // Returns the socket on which connections of tools come in, once: each is a packet with one
    // descriptor.
    Fd take_door() { return std::move(door_); }

    struct Answer {
        Started started;  // of a process
        std::optional<Error> refused;
        bool yes = true;
        std::vector<Fd> descriptors;
    };
    // Sends a request and waits for its answer, which must bring so many descriptors.
    Result<Answer> ask(const Asked& asked, const std::vector<int>& fds, size_t wanted);

  private:
    Result<Answer> hear(Nanos wait_max) const;
    std::vector<Fd> open_files(const std::vector<pid_t>& pids, ProcessFile file);
    Result<std::vector<SeenProcess>> look(const Pidfd& init, const std::vector<pid_t>& pids,
                                          const LookFor& what);
    void give_up(const std::string& why);

    Loop& loop_;
    Lost lost_;
    AgentUser user_;
    std::string configuration_, users_;
    Pidfd process_;
    Fd socket_, door_;
    Watch exit_;
};

}  // namespace souk::root
