// SPDX-License-Identifier: GPL-2.0-or-later
// ToolSession: one connection to the unix socket: a srun (submit, attach, change) or a pvdctl or
// marketctl. Who calls is the kernel's word (SO_PEERCRED), never the caller's. It reads the frames
// and says what may be asked of whom; what is asked is done by its ToolHost, the ToolServer, which
// owns it. Shared with Terminals while attached.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "agentd/daemon/terminals.hpp"
#include "agentd/daemon/user_turns.hpp"
#include "agentd/wire/codec.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/sys/net/user_share.hpp"
#include "kernel/wire/channel.hpp"

namespace souk {

class ToolSession;

// A session asks the daemon by this.
class ToolHost {
  public:
    virtual ~ToolHost() = default;

    virtual const NodeName& node() const = 0;
    virtual Terminals& terminals() = 0;
    virtual const HomeJob* job(const JobId& id) const = 0;
    // Why it does not run yet; empty: it does, or nothing is known.
    virtual std::string why_waits(const HomeJob& job) const = 0;
    virtual wire::Meter meter(const HomeJob& job) const = 0;

    virtual Result<JobId> submit(const wire::Submit& request, uint32_t uid) = 0;
    virtual Status change(const JobId& id, const JobTerms& terms) = 0;
    // A job that does not run now cannot take a signal: one that is meant to end it cancels it.
    virtual void signal(const JobId& id, int32_t number, bool ends) = 0;
    // Somebody is attached to a job that has finished: what its terminals wait for may be there.
    virtual void attached_to_finished(const JobId& id) = 0;

    // The node's owner asks: set, unset, market on or off, and how all that stands.
    virtual wire::CtlReply provider_request(const wire::CtlRequest& request) = 0;
    virtual std::string provider_json() const = 0;
    // When no guest, or none of that job, runs here any more, or after a bound.
    virtual void when_guests_left(const std::string& job, std::function<void()> done) = 0;
    // The node's own answer. Nothing: it is the market's to answer.
    virtual std::optional<wire::CtlReply> view(const wire::CtlRequest& request) const = 0;
    virtual void ask_market(wire::CtlRequest request,
                            std::function<void(wire::CtlReply)> answer) = 0;

    // Whether so many bytes more may be held here for tools of this user.
    virtual bool may_wait(uint32_t uid, size_t more) const = 0;
    virtual UserTurns& turns() = 0;

    // Its connection has closed.
    virtual void closed(ToolSession* session, bool welcomed, const Error& why) = 0;
    // It has said its last word, perhaps within one of the host's own calls.
    virtual void finished(std::shared_ptr<ToolSession> session) = 0;
};

class ToolSession : public TerminalSession, public std::enable_shared_from_this<ToolSession> {
  public:
    // `owner`: the configuration names him beside root.
    ToolSession(ToolHost& host, PeerCred who, std::vector<uint32_t> groups, bool owner,
                UserShare::Place place)
        : host_(host),
          who_(who),
          groups_(std::move(groups)),
          owner_(owner),
          place_(std::move(place)) {}
    Status open(Loop& loop, Fd socket);
    uint32_t uid() const { return who_.uid; }
    // Bytes held here for its peer: what it has not taken yet, what it has sent in part, and a
    // request that waits for its turn.
    size_t waiting() const {
        return (channel_ ? channel_->queued() + channel_->received() : 0) + request_bytes_;
    }
    // Nothing is called any more; the connection closes when what is queued has gone.
    void end();

    bool send(const wire::Output& output) override;
    void send(const wire::InputAck& ack) override { reply(ack); }
    void send(const wire::Notice& notice) override { reply(notice); }
    void send(const wire::Meter& meter) override { reply(meter); }
    void send(const wire::Exit& exit) override;

  private:
    void take(const wire::Frame& f);
    void serve(const wire::Frame& f);
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
        say(wire::frame_type<T>, wire::pack(message));
    }
    void say(wire::FrameType type, const std::string& body);
    Status may_keep(size_t more) const;
    bool may_wait(size_t more) const;

    ToolHost& host_;
    PeerCred who_;
    std::vector<uint32_t> groups_;
    bool owner_;
    UserShare::Place place_;  // among the connections of its user
    std::unique_ptr<wire::Channel> channel_;
    bool welcomed_ = false;
    size_t request_bytes_ = 0;  // of the one that waits for its turn
    std::optional<JobId> attached_;
};

}  // namespace souk
