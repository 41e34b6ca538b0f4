// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/tool_session.hpp"

#include <signal.h>

#include "agentd/daemon/caller_limits.hpp"
#include "agentd/daemon/leave_waits.hpp"

namespace souk {
namespace {

// some answers of the longest kind, and the output ahead
constexpr size_t tool_queue_bytes_max = 8 << 20;
constexpr size_t output_precopy_bytes = 1 << 20;  // a slow terminal's output waits in the spool
// So much may wait for each tool whatever waits for others of its user.
constexpr size_t always_waits_bytes = 128 << 10;
constexpr size_t line_bytes = 2 << 10;  // of a frame with a line, or beside its data

}  // namespace

Status ToolSession::open(Loop& loop, Fd socket) {
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this](const wire::Frame& f) {
        const auto self = shared_from_this();
        take(f);
    };
    handlers.may_keep = [this] { return may_keep(0); };
    handlers.on_closed = [this](const Error& e) { host_.closed(this, welcomed_, e); };
    handlers.on_drain = [this] {
        if (attached_) host_.terminals().pump(*attached_);
    };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.send_queue_bytes_max = tool_queue_bytes_max;
    TRY_ASSIGN(channel_,
               wire::Channel::open(loop, std::move(socket), std::move(handlers), options));
    return {};
}

void ToolSession::end() {
    if (attached_) host_.terminals().detach(*attached_, this);
    attached_.reset();
    if (channel_ && !channel_->closed()) channel_->finish();
}

bool ToolSession::may_wait(size_t more) const {
    const size_t own = waiting() + more;
    return own <= always_waits_bytes || host_.may_wait(who_.uid, more);
}

Status ToolSession::may_keep(size_t more) const {
    if (may_wait(more)) return {};
    return fail(CauseCode::too_many,
                "tools of this user have sent too much in part, or leave too much unread "
                "(user_answers_mb in agentd's configuration): end those that do not go on");
}

// A request waits for its user's turn, and nothing more of this connection is read until it is
// done. Input and what was written out are no requests: they are bounded by the job's streams.
void ToolSession::take(const wire::Frame& f) {
    UserTurns& turns = host_.turns();
    if (!welcomed_ || f.type == wire::frame::input || f.type == wire::frame::output_ack)
        return serve(f);
    if (turns.is_now(who_.uid)) return turns.run(who_.uid, [&] { serve(f); });
    if (const Status kept = may_keep(f.body.size()); !kept) {
        reply(wire::ErrorText{kept.error()});
        return host_.finished(shared_from_this());
    }
    request_bytes_ = f.body.size();
    channel_->pause_reading();
    turns.later(who_.uid, [kept = weak_from_this(), type = f.type, body = std::string(f.body)] {
        const auto self = kept.lock();
        if (!self || !self->channel_) return;
        self->request_bytes_ = 0;
        self->serve({type, body});
        if (self->channel_) self->channel_->resume_reading();
    });
}

void ToolSession::serve(const wire::Frame& f) {
    if (const Status done = frame(f); !done) reply(wire::ErrorText{as_asked(done.error())});
}

// A tool that reads nothing is cut off before its user's share is passed. Of one that reads, that
// user's other tools have used up the share: it hears so.
void ToolSession::say(wire::FrameType type, const std::string& body) {
    if (!channel_) return;
    if (may_wait(body.size())) return (void)channel_->send(type, body);
    const Cause why(CauseCode::too_many,
                    "too much waits to be read by tools of this user (user_answers_mb in agentd's "
                    "configuration): read it, or end those that do not");
    if (waiting() + line_bytes <= always_waits_bytes)
        return (void)channel_->send(wire::frame::error_text, wire::pack(wire::ErrorText{why}));
    host_.finished(shared_from_this());
    if (attached_) host_.terminals().detach(*attached_, this);
    attached_.reset();
    channel_.reset();
}

bool ToolSession::send(const wire::Output& output) {
    if (!channel_ || channel_->queued() > output_precopy_bytes ||
        !may_wait(output.data.size() + line_bytes))
        return false;
    return channel_->send(wire::frame::output, wire::pack(output)).has_value();
}

void ToolSession::send(const wire::Exit& exit) {
    reply(exit);
    host_.finished(shared_from_this());
}

Status ToolSession::frame(const wire::Frame& f) {
    namespace frame = wire::frame;
    if (!welcomed_) {
        TRY_ASSIGN(const wire::Hello hello, wire::unpack<wire::Hello>(f.body));
        TRY(wire::check_version(hello.version, hello.program));
        welcomed_ = true;
        reply(wire::Welcome{wire::protocol_version, host_.node()});
        return {};
    }
    switch (f.type) {
        case frame::submit: {
            TRY_ASSIGN(wire::Submit request, wire::unpack<wire::Submit>(f.body));
            return submit(std::move(request));
        }
        case frame::attach: {
            TRY_ASSIGN(const wire::Attach request, wire::unpack<wire::Attach>(f.body));
            return attach(request);
        }
        case frame::change: {
            TRY_ASSIGN(const wire::Change request, wire::unpack<wire::Change>(f.body));
            return change(request);
        }
        case frame::ctl_request: {
            TRY_ASSIGN(wire::CtlRequest request, wire::unpack<wire::CtlRequest>(f.body));
            return question(std::move(request));
        }
        default: break;
    }
    if (!attached_) return fail("this connection is not attached to a job");
    const HomeJob* job = host_.job(*attached_);
    if (!job) return fail("job " + attached_->text() + " is gone");
    switch (f.type) {
        case frame::output_ack: {
            TRY_ASSIGN(const wire::OutputAck ack, wire::unpack<wire::OutputAck>(f.body));
            host_.terminals().output_written(*attached_, this, ack);
            return {};
        }
        case frame::input: {
            TRY_ASSIGN(const wire::Input input, wire::unpack<wire::Input>(f.body));
            host_.terminals().input(*job, input);
            return {};
        }
        case frame::winch: {
            TRY_ASSIGN(const wire::Winch winch, wire::unpack<wire::Winch>(f.body));
            host_.terminals().winch(*job, winch);
            return {};
        }
        case frame::signal: {
            TRY_ASSIGN(const wire::Signal number, wire::unpack<wire::Signal>(f.body));
            return signal(number);
        }
        default:
            return fail("a tool does not send frames of type " +
                        std::to_string(static_cast<int>(f.type)));
    }
}

Result<const HomeJob*> ToolSession::mine(const JobId& id) const {
    const HomeJob* job = host_.job(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on node " + host_.node());
    if (who_.uid != 0 && who_.uid != job->spec.launch.uid)
        return fail(CauseCode::not_allowed, "job " + id.text() + " belongs to " + job->user);
    return job;
}

Status ToolSession::submit(wire::Submit request) {
    request.spec.launch.uid = who_.uid;
    request.spec.launch.gid = who_.gid;
    request.spec.launch.groups = groups_;
    TRY(clamp_to_caller(request.spec.launch.rlimits, who_.pid, who_.uid));
    TRY_ASSIGN(const JobId id, host_.submit(request, who_.uid));
    const HomeJob* job = host_.job(id);
    reply(wire::Submitted{id, job ? host_.why_waits(*job) : std::string(), true, true, true, true});
    if (!request.attach) return {};
    wire::Attach from_start;
    from_start.id = id;
    from_start.resume = true;
    return begin_attached(id, from_start);
}

Status ToolSession::attach(const wire::Attach& request) {
    TRY(mine(request.id));
    return begin_attached(request.id, request);
}

Status ToolSession::begin_attached(const JobId& id, const wire::Attach& request) {
    if (attached_)
        return fail("this connection is attached to job " + attached_->text() + " already");
    const HomeJob* job = host_.job(id);
    TRY_ASSIGN(const wire::Attached answer,
               host_.terminals().attach(*job, request, shared_from_this()));
    attached_ = id;
    reply(answer);
    reply(host_.meter(*job));
    if (const std::string why = host_.why_waits(*job); !why.empty())
        reply(wire::Notice{home::Tell::What::comment, why});
    host_.terminals().pump(id);
    if (job->phase == JobPhase::finished) host_.attached_to_finished(id);
    return {};
}

Status ToolSession::change(const wire::Change& request) {
    TRY_ASSIGN(const HomeJob* job, mine(request.id));
    const JobTerms terms = wire::changed(job->terms, request);
    TRY(host_.change(request.id, terms));
    reply(wire::Ok{});
    return {};
}

Status ToolSession::signal(const wire::Signal& signal) {
    const bool ends = signal.number == SIGINT || signal.number == SIGTERM ||
                      signal.number == SIGHUP || signal.number == SIGQUIT ||
                      signal.number == SIGKILL;
    host_.signal(*attached_, signal.number, ends);
    return {};
}

Status ToolSession::question(wire::CtlRequest request) {
    request.uid = who_.uid;
    // An owner may do what is asked of an owner. For the rest he is the user that he is.
    if (owner_ && (request.verb.starts_with("provider-") || request.verb == "guests"))
        request.uid = 0;
    const uint64_t number = request.request;
    if (request.verb.starts_with("provider-") || request.verb == "node-status") {
        wire::CtlReply answer = host_.provider_request(request);
        answer.request = number;
        const auto of = waits_for(request);
        if (!answer.ok || !of) {
            reply(answer);
            return {};
        }
        host_.when_guests_left(*of, [self = weak_from_this(), answer]() mutable {
            const auto s = self.lock();
            if (!s) return;
            answer.json = s->host_.provider_json();
            s->reply(answer);
        });
        return {};
    }
    if (const auto answer = host_.view(request)) {
        reply(*answer);
        return {};
    }
    host_.ask_market(std::move(request), [self = weak_from_this(), number](wire::CtlReply answer) {
        answer.request = number;
        if (const auto s = self.lock()) s->reply(answer);
    });
    return {};
}

}  // namespace souk
