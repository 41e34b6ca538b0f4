// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/line.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "kernel/sys/net/socket.hpp"
#include "kernel/wire/tls.hpp"
#include "tools/common/link.hpp"

namespace souk::tools::web {
namespace {

constexpr size_t waiting_max = 64;
constexpr Nanos connect_limit = Nanos::from_s(10), line_idle_max = Nanos::from_s(30),
                age_max = Nanos::from_s(600);

}  // namespace

Line::Line(Remote remote)
    : remote_(std::move(remote)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { run(); }) {}

Line::~Line() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    (void)::eventfd_write(wake_.get(), 1);
    thread_.join();
}

Result<ListPart> Line::ask(const std::string& verb, const std::vector<std::string>& args,
                           const std::string& after, Nanos limit) {
    std::future<Result<wire::CtlReply>> answer;
    {
        const std::lock_guard lock(mutex_);
        if (waiting_ >= waiting_max)
            return fail("too many questions to the market at " + remote_.market + " wait");
        ++waiting_;
        asked_.push_back({{0, 0, verb, args, after}, {}});
        answer = asked_.back().answer.get_future();
    }
    (void)::eventfd_write(wake_.get(), 1);
    if (answer.wait_for(std::chrono::nanoseconds(limit.ns)) != std::future_status::ready)
        return tl::unexpected(Error{ETIMEDOUT, "no answer from " + remote_.market});
    TRY_ASSIGN(wire::CtlReply reply, answer.get());
    if (!reply.ok) return tl::unexpected(refusal(reply));
    return ListPart{std::move(reply.json), std::move(reply.next)};
}

// -------------------------------------------------------------------------------------------------
// the thread

void Line::run() {
    auto loop = Loop::open();
    if (!loop) return;  // each question ends at its limit
    loop_.emplace(std::move(*loop));
    const auto watch = loop_->watch(wake_.get(), POLLIN, [this](short) { take(); });
    if (watch) (void)loop_->run();
    idle_.cancel();
    connecting_ = {};
    channel_.reset();
    loop_.reset();
}

void Line::take() {
    eventfd_t count = 0;
    (void)::eventfd_read(wake_.get(), &count);
    std::deque<Question> asked;
    {
        const std::lock_guard lock(mutex_);
        if (stop_) return loop_->stop();
        asked.swap(asked_);
    }
    for (Question& q : asked) unsent_.push_back(std::move(q));
    if (unsent_.empty()) return;
    const bool old = channel_ && Loop::now() - opened_ > age_max && unanswered_.empty();
    if (old || (channel_ && channel_->closed())) channel_.reset();
    if (channel_ || connecting_) return send_all();
    if (const Status begun = connect(); !begun) broken(begun.error());
}

Status Line::connect() {
    TRY_ASSIGN(tls_, tls_of(remote_));
    TRY_ASSIGN(const Address address, Address::resolve(remote_.market));
    TRY_ASSIGN(connecting_, loop_->connect(address, connect_limit, [this](Result<Fd> socket) {
        connecting_ = {};
        if (const Status done = connected(std::move(socket)); !done) broken(done.error());
    }));
    return {};
}

Status Line::connected(Result<Fd> socket) {
    if (!socket) return tl::unexpected(socket.error());
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this](const wire::Frame& f) { frame(f); };
    handlers.on_closed = [this](const Error& e) { broken(e); };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.side = wire::Side::connector;
    options.keepalive = Nanos::from_s(10);
    TRY_ASSIGN(channel_,
               wire::Channel::open(*loop_, std::move(*socket), std::move(handlers), options,
                                   tls_->connector(trust::only(trust::Role::market), "")));
    welcomed_ = false;
    last_ = 0;
    opened_ = Loop::now();
    return channel_->send(wire::frame::hello, wire::pack(wire::Hello{}));
}

void Line::frame(const wire::Frame& f) {
    if (f.type == wire::frame::welcome) {
        welcomed_ = true;
        return send_all();
    }
    if (f.type == wire::frame::error_text) {
        const auto text = wire::unpack<wire::ErrorText>(f.body);
        return broken(text ? Error{0, text->text, text->text.code} : text.error());
    }
    auto reply = f.type == wire::frame::ctl_reply
                     ? wire::unpack<wire::CtlReply>(f.body)
                     : Result<wire::CtlReply>(fail("an unexpected answer from the daemon"));
    if (!reply) return broken(reply.error());
    const auto question = unanswered_.find(reply->request);
    if (question == unanswered_.end()) return;
    question->second.answer.set_value(std::move(*reply));
    unanswered_.erase(question);
    {
        const std::lock_guard lock(mutex_);
        --waiting_;
    }
    rest();
}

void Line::send_all() {
    if (!channel_ || !welcomed_) return;
    idle_.cancel();
    while (!unsent_.empty()) {
        Question q = std::move(unsent_.front());
        unsent_.pop_front();
        q.request.request = ++last_;
        const Status sent = channel_->send(wire::frame::ctl_request, wire::pack(q.request));
        unanswered_.emplace(last_, std::move(q));
        if (!sent) return broken(sent.error());
    }
}

// Fails all questions that have no answer. The next question makes a new connection.
void Line::broken(const Error& why) {
    connecting_ = {};
    channel_.reset();
    idle_.cancel();
    auto unsent = std::exchange(unsent_, {});
    for (auto& [number, q] : std::exchange(unanswered_, {})) unsent.push_back(std::move(q));
    {
        const std::lock_guard lock(mutex_);
        waiting_ -= unsent.size();
    }
    for (Question& q : unsent)
        q.answer.set_value(wrap(remote_.market, Error{why.code, why.message}));
}

void Line::rest() {
    if (!unanswered_.empty() || !unsent_.empty()) return;
    idle_ = loop_->after(line_idle_max, [this] { channel_.reset(); });
}

}  // namespace souk::tools::web
