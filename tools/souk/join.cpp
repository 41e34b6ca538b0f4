// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/join.hpp"

#include <unistd.h>

#include <optional>

#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/ticket_list.hpp"
#include "kernel/wire/channel.hpp"
#include "kernel/wire/tls.hpp"
#include "market/wire/codec.hpp"

namespace souk {
namespace {

constexpr Nanos connect_limit = Nanos::from_s(10), answer_limit = Nanos::from_s(20);

// One connection of a joiner: what came of it.
class Joining {
  public:
    Joining(Loop& loop, wire::Tls& tls, const JoinPlan& plan, std::string request)
        : loop_(loop), tls_(tls), plan_(plan), request_(std::move(request)) {}

    Result<wire::Certified> run() {
        TRY(talk());
        if (!outcome_) return fail("no answer within 20 s");
        return *outcome_;
    }
    // Only the welcome is awaited.
    Result<Nanos> time() {
        asks_time_ = true;
        TRY(talk());
        if (!outcome_) return fail("no answer within 20 s");
        if (!*outcome_) return tl::unexpected(outcome_->error());
        if (time_.ns == 0) return fail("the market does not tell its time: it is an older version");
        return time_;
    }

  private:
    Status talk() {
        TRY_ASSIGN(const Address address, Address::resolve(plan_.market));
        TRY_ASSIGN(connecting_, loop_.connect(address, connect_limit, [this](Result<Fd> socket) {
            if (const Status done = connected(std::move(socket)); !done) end(done.error());
        }));
        TRY(loop_.run_until([&] { return outcome_.has_value(); }, answer_limit));
        return {};
    }

    Status connected(Result<Fd> socket) {
        if (!socket) return tl::unexpected(socket.error());
        wire::ChannelHandlers handlers;
        handlers.on_frame = [this](const wire::Frame& f) {
            if (const Status taken = frame(f); !taken) end(taken.error());
        };
        handlers.on_closed = [this](const Error& e) { end(e); };
        wire::ChannelOptions options;
        options.words = wire::market_words;
        options.side = wire::Side::connector;
        TRY_ASSIGN(channel_,
                   wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                                       tls_.connector(trust::only(trust::Role::market), "")));
        wire::Hello hello;
        hello.role = wire::Role::joiner;
        hello.node = plan_.name;
        return channel_->send(wire::frame::hello, wire::pack(hello));
    }

    Status frame(const wire::Frame& f) {
        if (f.type == wire::frame::error_text) {
            TRY_ASSIGN(const auto text, wire::unpack<wire::ErrorText>(f.body));
            return fail("the market says: " + text.text);
        }
        if (f.type == wire::frame::welcome) {
            if (asks_time_) {
                TRY_ASSIGN(const auto welcome, wire::unpack<wire::Welcome>(f.body));
                time_ = welcome.time;
                outcome_ = wire::Certified{};
                return {};
            }
            // The peer has the market's certificate below the token's root: else it had not been
            // heard.
            const wire::Join join{plan_.token.id, plan_.token.secret, request_};
            return channel_->send(wire::frame::join, wire::pack(join));
        }
        if (f.type != wire::frame::certified) return fail("an unexpected answer of the market");
        TRY_ASSIGN(outcome_, wire::unpack<wire::Certified>(f.body));
        return {};
    }

    void end(const Error& error) {
        if (!outcome_) outcome_ = tl::unexpected(error);
    }

    Loop& loop_;
    wire::Tls& tls_;
    const JoinPlan& plan_;
    const std::string request_;
    bool asks_time_ = false;
    Nanos time_;
    Connect connecting_;
    std::unique_ptr<wire::Channel> channel_;
    std::optional<Result<wire::Certified>> outcome_;
};

// So a node knows from the start that its market signs this list. What lies there is of a market of
// before, which may be another one.
Status take_tickets(const std::string& dir, const std::string& list,
                    const trust::Certificate& issuer) {
    for (const char* file : {"/ticket-keys", "/ticket-list"}) (void)::unlink((dir + file).c_str());
    if (list.empty()) return {};
    TRY_ASSIGN(const trust::Key key, issuer.key());
    TRY(trust::parse_ticket_list(list, key));
    return trust::save_ticket_list(dir, list);
}

}  // namespace

Result<Nanos> market_time(const std::string& market, const std::string& root_digest) {
    const JoinPlan plan{{}, "doctor", market, {}};
    TRY_ASSIGN(Loop loop, Loop::open());
    TRY_ASSIGN(const auto tls, wire::Tls::open_stranger(root_digest));
    return Joining(loop, *tls, plan, {}).time();
}

Result<Nanos> join(const JoinPlan& plan) {
    TRY(trust::make_private_dir(plan.identity));
    TRY_ASSIGN(const trust::Key key, trust::key_of(plan.identity));
    TRY_ASSIGN(std::string request, trust::make_request(key, plan.name));
    TRY_ASSIGN(Loop loop, Loop::open());
    TRY_ASSIGN(const auto tls, wire::Tls::open_stranger(plan.token.root));
    const auto certified = Joining(loop, *tls, plan, std::move(request)).run();
    if (!certified) return wrap("join the market at " + plan.market, certified.error());
    TRY_ASSIGN(auto chain, trust::parse_chain(certified->chain));
    const trust::Certificate& root = *tls->root();
    TRY_ASSIGN(const trust::Peer me, trust::verify(chain, root, {}, unix_now()));
    if (me.subject.name != plan.name || me.key != key.digest())
        return fail("the market has certified somebody else");
    TRY(trust::save_revoked(plan.identity, certified->revoked));
    TRY(take_tickets(plan.identity, certified->tickets, chain.back()));
    TRY(trust::save_identity(plan.identity, {key, std::move(chain), root, {}}));
    return certified->insecure_until;
}

}  // namespace souk
