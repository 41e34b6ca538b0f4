// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/market_link.hpp"

#include <sys/random.h>

#include <algorithm>

#include "kernel/base/node_address.hpp"
#include "kernel/base/release.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr Nanos market_connect_limit = Nanos::from_s(3), market_keepalive = Nanos::from_s(10),
                question_limit = Nanos::from_s(10);
constexpr Nanos market_pause_min = Nanos::from_ms(50), market_pause_max = Nanos::from_s(2);
// A connection that is lost sooner counts as another failure, so that the pauses grow.
constexpr Nanos market_stands = Nanos::from_s(10);
constexpr size_t questions_max = 1024, questions_reserve = questions_max / 8,
                 user_questions_max = questions_max / 8;
constexpr size_t market_queue_bytes_max = 64 << 20, reports_bytes_max = market_queue_bytes_max / 2;

wire::CtlReply refusal(Cause why) {
    wire::CtlReply r;
    r.error = std::move(why);
    return r;
}

// Differs from every other node's.
uint64_t random_seed() {
    uint64_t seed = 0;
    if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = static_cast<uint64_t>(Loop::now().ns);
    return seed;
}

}  // namespace

MarketLink::MarketLink(Loop& loop, Log& log, wire::Tls* tls, NodeName node, std::string own_address,
                       std::string market, MarketListener& listener)
    : loop_(loop),
      log_(log),
      tls_(tls),
      node_(std::move(node)),
      own_address_(std::move(own_address)),
      market_(std::move(market)),
      listener_(listener),
      pause_(market_pause_min, market_pause_max, random_seed()) {}

void MarketLink::connect() {
    // Names may change what they stand for; the resolver is asked at start, a number costs nothing.
    auto address = Address::parse(market_);
    if (!address) address = Address::resolve(market_);
    if (!address) return lost(address.error().message);
    auto connecting = loop_.connect(*address, market_connect_limit,
                                    [this](Result<Fd> socket) { connected(std::move(socket)); });
    if (!connecting) return lost(connecting.error().message);
    connecting_ = std::move(*connecting);
}

// Behind a gateway the market may see this node where nobody reaches it: those in its own network
// reach it where it connects from.
std::string MarketLink::told_address(const Fd& socket) const {
    const NodeAddress own = NodeAddress::parted(own_address_);
    const auto local = Address::local(socket.get());
    if (own.gateway.empty() || !own.is_everywhere() || !local) return own_address_;
    const std::string text = local->text();
    return own.at_host(text.substr(0, text.rfind(':'))).text();
}

void MarketLink::connected(Result<Fd> socket) {
    connecting_.close();
    if (!socket) return lost(socket.error().message);
    (void)set_no_delay(socket->get());
    const std::string address = told_address(*socket);
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this](const wire::Frame& f) {
        const bool ends = !welcomed_ || f.type == wire::frame::error_text;
        const Status taken = frame(f);
        if (taken) return;
        if (ends) return lost(taken.error().message);
        // One word that cannot be read is of one job or one question: all others go on.
        log_.limited("unread", Loop::now(), Level::warning, "a word of the market was left out",
                     {{"WHY", taken.error()}});
    };
    handlers.on_closed = [this](const Error& e) { lost(e.message); };
    handlers.on_drain = [this] {
        if (welcomed_) listener_.market_drained();
    };
    wire::ChannelOptions options;
    options.words = wire::market_words;
    options.side = wire::Side::connector;
    options.keepalive = market_keepalive;
    options.send_queue_bytes_max = market_queue_bytes_max;
    auto channel = wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                                       wire::connector(tls_, trust::only(trust::Role::market), ""));
    if (!channel) return lost(channel.error().message);
    channel_ = std::move(*channel);
    wire::Hello hello;
    hello.role = wire::Role::agent;
    hello.node = node_;
    hello.address = address;
    hello.answers = true;
    hello.tickets = hello.sites = true;
    (void)channel_->send(wire::frame::hello, wire::pack(hello));
}

Status MarketLink::frame(const wire::Frame& f) {
    if (f.type == wire::frame::error_text) {
        TRY_ASSIGN(const wire::ErrorText text, wire::unpack<wire::ErrorText>(f.body));
        return fail(text.text.code, "the market says: " + text.text);
    }
    if (!welcomed_) {
        TRY_ASSIGN(const wire::Welcome welcome, wire::unpack<wire::Welcome>(f.body));
        TRY(wire::check_version(welcome.version, welcome.program));
        log_.info("connected to the market", {{"at", market_}, {"version", welcome.program}});
        if (!welcome.program.empty() && !may_run_together(welcome.program, version()))
            log_.warning("the market is more than one version apart: bring both to one",
                         {{"market", welcome.program}, {"node", version()}});
        welcomed_ = true;
        takes_use_ = welcome.takes_use;
        trouble_.clear();
        up_at_ = Loop::now();
        listener_.market_up(welcome.address);
        listener_.market_tried();
        return {};
    }
    if (f.type == wire::frame::ctl_reply) {
        TRY_ASSIGN(wire::CtlReply reply, wire::unpack<wire::CtlReply>(f.body));
        const uint64_t number = reply.request;
        answer(number, std::move(reply));
        return {};
    }
    if (f.type == wire::frame::ctl_request) {
        TRY_ASSIGN(const wire::CtlRequest request, wire::unpack<wire::CtlRequest>(f.body));
        return channel_->send(wire::frame::ctl_reply, wire::pack(listener_.market_asks(request)));
    }
    if (f.type == wire::frame::certified) {
        TRY_ASSIGN(const auto certified, wire::unpack<wire::Certified>(f.body));
        listener_.certified(certified);
        return {};
    }
    if (f.type == wire::frame::revoked) {
        TRY_ASSIGN(const auto revoked, wire::unpack<wire::Revoked>(f.body));
        listener_.revoked(revoked.list);
        return {};
    }
    if (f.type == wire::frame::ticket_keys) {
        TRY_ASSIGN(const auto told, wire::unpack<wire::TicketKeys>(f.body));
        listener_.ticket_keys(told);
        return {};
    }
    if (f.type == wire::frame::peer_sites) {
        TRY_ASSIGN(const auto told, wire::unpack<wire::PeerSites>(f.body));
        listener_.peer_sites(told);
        return {};
    }
    TRY_ASSIGN(const FromMarket message, wire::unpack_from_market(f.type, f.body));
    listener_.from_market(message);
    return {};
}

void MarketLink::lost(const std::string& why) {
    if (trouble_ != why)
        log_.warning("no connection to the market", {{"at", market_}, {"WHY", why}});
    trouble_ = why;
    channel_.reset();
    const bool was_up = std::exchange(welcomed_, false);
    if (was_up && Loop::now() - up_at_ >= market_stands) pause_.reset();
    retry_ = loop_.after(pause_.next(), [this] { connect(); });
    for (auto& [number, q] : std::exchange(questions_, {}))
        q.done(refusal("the connection to the market broke: " + why));
    if (was_up) listener_.market_down();
    listener_.market_tried();
}

bool MarketLink::send(const ToMarket& message) {
    if (!welcomed_) return true;
    if (std::holds_alternative<JobReport>(message) && channel_->queued() > reports_bytes_max)
        return false;
    if (auto sent = channel_->send(wire::type_of(message), wire::pack(message)); !sent) {
        // Starts afresh, with a whole report, outside of whatever is being sent now.
        loop_.defer([this, why = sent.error().message] {
            if (channel_) lost(why);
        });
    }
    return true;
}

void MarketLink::send(const UseReport& report) {
    // A report that is lost needs no care, because the next one says all again.
    if (welcomed_ && takes_use_)
        (void)channel_->send(wire::frame_type<UseReport>, wire::pack(report));
}

bool MarketLink::renew(const std::string& request) {
    return welcomed_ &&
           channel_->send(wire::frame::renew, wire::pack(wire::Renew{request})).has_value();
}

void MarketLink::ask(wire::CtlRequest request, std::function<void(wire::CtlReply)> done) {
    if (!welcomed_) {
        auto away = refusal({CauseCode::away, "this node has no connection to the market at " +
                                                  market_ + " (" + trouble_ + ")"});
        away.away = true;
        return done(std::move(away));
    }
    if (!may_ask(request.uid))
        return done(
            refusal({CauseCode::too_many, "too many questions to the market are under way"}));
    const uint64_t number = next_question_++;
    request.request = number;
    Timer limit = loop_.after(question_limit, [this, number] {
        answer(number, refusal({CauseCode::away, "the market did not answer within 10 s"}));
    });
    questions_.emplace(number, Question{request.uid, std::move(done), std::move(limit)});
    if (auto sent = channel_->send(wire::frame::ctl_request, wire::pack(request)); !sent)
        answer(number, refusal(sent.error()));
}

// Those of a plain user leave room for others', and those of all plain users for root's.
bool MarketLink::may_ask(uint32_t uid) const {
    if (questions_.size() >= questions_max) return false;
    if (uid == 0) return true;
    const auto own =
        std::ranges::count_if(questions_, [&](const auto& q) { return q.second.uid == uid; });
    const auto roots =
        std::ranges::count_if(questions_, [](const auto& q) { return q.second.uid == 0; });
    return static_cast<size_t>(own) < user_questions_max &&
           questions_.size() - static_cast<size_t>(roots) < questions_max - questions_reserve;
}

void MarketLink::answer(uint64_t number, wire::CtlReply reply) {
    const auto it = questions_.find(number);
    if (it == questions_.end()) return;
    const auto done = std::move(it->second.done);
    questions_.erase(it);
    done(std::move(reply));
}

}  // namespace souk
