// SPDX-License-Identifier: GPL-2.0-or-later
// ToolSession: one connection to the unix socket: a srun (submit, attach, change) or a pvdctl or
// marketctl. Who calls is the kernel's word (SO_PEERCRED), never the caller's. Owned by the Agent,
// shared with Terminals while attached.
#pragma once

#include <memory>
#include <optional>

#include "agentd/daemon/terminals.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/sys/net/user_share.hpp"
#include "market/wire/channel.hpp"
#include "market/wire/codec.hpp"

namespace souk {

class Agent;

class ToolSession : public TerminalSession, public std::enable_shared_from_this<ToolSession> {
  public:
    ToolSession(Agent& agent, PeerCred who, std::vector<uint32_t> groups, UserShare::Place place)
        : agent_(agent), who_(who), groups_(std::move(groups)), place_(std::move(place)) {}
    Status open(Loop& loop, Fd socket);
    // Nothing is called any more; the connection closes when what is queued has gone.
    void end();

    bool send(const wire::Output& output) override;
    void send(const wire::InputAck& ack) override { reply(ack); }
    void send(const wire::Notice& notice) override { reply(notice); }
    void send(const wire::Exit& exit) override;

  private:
    Status frame(const wire::Frame& f);
    Status submit(wire::Submit request);
    Status attach(const wire::Attach& request);
    Status change(const wire::Change& request);
    Status signal(const wire::Signal& signal);
    Status question(wire::CtlRequest request);
    Status begin_attached(const JobId& id, const wire::Attach& request);
    // The job, if the caller may touch it.
    Result<const HomeJob*> mine(const JobId& id) const;
    template <class T>
    void reply(const T& message) {
        if (channel_) (void)channel_->send(wire::frame_type<T>, wire::pack(message));
    }

    Agent& agent_;
    PeerCred who_;
    std::vector<uint32_t> groups_;
    UserShare::Place place_;  // among the connections of its user
    std::unique_ptr<wire::Channel> channel_;
    bool welcomed_ = false;
    std::optional<JobId> attached_;
};

}  // namespace souk
