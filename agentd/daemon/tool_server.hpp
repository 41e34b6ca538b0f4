// SPDX-License-Identifier: GPL-2.0-or-later
// ToolServer: the unix socket of this node, and the owners and operators on other hosts. It takes
// each connection of srun, pvdctl and marketctl, keeps its session (tool_session.hpp), and gives
// what a session asks to the part that does it. The places for sessions and the answers that wait
// are shared among users, so that one user cannot keep the others out. Owned by the Agent.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "agentd/daemon/home_shell.hpp"
#include "agentd/daemon/node_views.hpp"
#include "agentd/daemon/owner_rules.hpp"
#include "agentd/daemon/tool_session.hpp"
#include "kernel/sys/net/user_share.hpp"

namespace souk {

struct ToolServerParts {
    Loop& loop;
    Log& log;
    const Config& config;
    const SystemAccounts& accounts;
    int socket;  // souk-root hands each connection over by it
    Peers& peers;
    MarketLink& market;
    HomeShell& home;
    OwnerRules& rules;
    const NodeViews& views;
};

class ToolServer final : public RemoteTools, private ToolHost {
  public:
    explicit ToolServer(const ToolServerParts& parts)
        : p_(parts), share_(bounds(parts.config)), turns_(parts.loop) {}
    Status open();
    void remote_request(uint64_t connection, const trust::Peer& who,
                        wire::CtlRequest request) override;

  private:
    static UserShare::Bounds bounds(const Config& config);
    void come();
    void accept(Fd socket);
    void drop(ToolSession* session);
    bool is_owner(const PeerCred& who, std::vector<uint32_t> groups) const;

    const NodeName& node() const override { return p_.config.node; }
    Terminals& terminals() override { return p_.home.terminals(); }
    const HomeJob* job(const JobId& id) const override { return p_.home.machine().find(id); }
    std::string why_waits(const HomeJob& job) const override { return p_.home.why_waits(job); }
    wire::Meter meter(const HomeJob& job) const override { return p_.home.meter(job); }
    Result<JobId> submit(const wire::Submit& request, uint32_t uid) override {
        return p_.home.submit(request, uid);
    }
    Status change(const JobId& id, const JobTerms& terms) override {
        return p_.home.change(id, terms);
    }
    void signal(const JobId& id, int32_t number, bool ends) override {
        p_.home.signal(id, number, ends);
    }
    void attached_to_finished(const JobId& id) override { p_.home.attached_to_finished(id); }
    wire::CtlReply provider_request(const wire::CtlRequest& request) override;
    std::string provider_json() const override { return p_.rules.status_json(); }
    void when_guests_left(const std::string& job, std::function<void()> done) override {
        p_.rules.when_guests_left(job, std::move(done));
    }
    std::optional<wire::CtlReply> view(const wire::CtlRequest& request) const override;
    void ask_market(wire::CtlRequest request, std::function<void(wire::CtlReply)> answer) override;
    bool may_wait(uint32_t uid, size_t more) const override;
    UserTurns& turns() override { return turns_; }
    void closed(ToolSession* session, bool welcomed, const Error& why) override;
    void finished(std::shared_ptr<ToolSession> session) override;

    ToolServerParts p_;
    Watch watch_;
    UserShare share_;
    UserTurns turns_;
    std::map<ToolSession*, std::shared_ptr<ToolSession>> sessions_;
};

}  // namespace souk
