// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/market_trust.hpp"

#include <algorithm>

#include "kernel/sys/host/clock.hpp"
#include "market/wire/codec.hpp"

namespace souk {

namespace {

constexpr ptrdiff_t operator_connections = 64;  // of one certificate

}  // namespace

Status MarketTrust::open() {
    TRY_ASSIGN(tls_, wire::open_tls(config_.identity, config_.insecure, "souk setup market",
                                    {.takes_strangers = true}));
    if (!tls_) return {};
    TRY_ASSIGN(enrolment_, Enrolment::open(state_, config_.identity, *tls_->identity()));
    tls_->revoke(enrolment_->revoked());
    TRY_ASSIGN(ticket_ring_, trust::TicketRing::open(config_.identity, unix_now()));
    told_calendar_ = unix_now() - Loop::now();
    renew_own();
    watch_insecure();
    return {};
}

// Signs what the order lets its home do on other nodes. Without a ticket the home is refused there,
// and the market hears of that.
void MarketTrust::give_ticket(Order& order) {
    const market::Job* const job = market_.find(order.id);
    const auto is_here = [](const NodeName& node) {
        return !node.empty() && of_site(node).site.empty();
    };
    // Another site's market has given that for its own node, and this one lets its own node send.
    const bool leaves = !order.ticket.empty();
    if (leaves && (!job || !is_here(job->record.report.where) || is_here(order.node))) return;
    auto ticket = job && ticket_ring_ ? market::Orders::ticket(*job, order) : std::nullopt;
    if (!ticket) return;
    // Nodes reckon by this clock, so they hear of it before the first ticket after it was set.
    constexpr Nanos worth_telling = Nanos::from_s(30);
    const Nanos off = unix_now() - Loop::now() - told_calendar_;
    if (off > worth_telling || Nanos{} - worth_telling > off) tell_ticket_keys();
    for (const NodeName& node : {order.id.home, ticket->source, ticket->destination}) {
        const Connection* const there = connections_.agent(node);
        const trust::Peer* const peer = there ? there->channel->peer() : nullptr;
        if (!peer) continue;
        if (node == order.id.home) {
            ticket->realm = peer->subject.scope;
            // A user without a name is known by his number alone.
            if (enrolment_ && !enrolment_->may_name(peer->key, ticket->uid, ticket->user))
                ticket->user.clear();
        }
        const std::string& key = peer->key;
        if (std::find(ticket->keys.begin(), ticket->keys.end(), key) == ticket->keys.end())
            ticket->keys.push_back(key);
    }
    ticket->issued = unix_now();
    ticket->expires = ticket->issued + ticket_life;
    auto sealed = ticket_ring_->seal(wire::pack(*ticket), ticket->issued);
    if (!sealed)
        return log_.limited("seal", Loop::now(), Level::error, "an order goes without a ticket",
                            {{"JOB", order.id.text()}, {"WHY", sealed.error()}});
    (leaves ? order.source_ticket : order.ticket) = std::move(*sealed);
    log_.limited("ticket", Loop::now(), Level::info, "a ticket is issued",
                 {{"JOB", order.id.text()},
                  {"number", ticket->number},
                  {"user", ticket->user},
                  {"source", ticket->source},
                  {"NODE", ticket->destination}});
}

void MarketTrust::turn_ticket_keys() {
    const auto turn = [&]() -> Result<bool> {
        TRY(ticket_ring_->turn(unix_now()));
        TRY_ASSIGN(const std::string keys, ticket_ring_->public_text());
        return enrolment_->list_tickets(keys, unix_now());
    };
    const auto turned = turn();
    if (!turned)
        return log_.limited("ticket keys", Loop::now(), Level::error,
                            "the keys of tickets are not brought up to date",
                            {{"WHY", turned.error()}});
    if (!*turned) return;
    log_.notice("the keys that tickets are signed with have changed");
    tell_ticket_keys();
}

void MarketTrust::tell_ticket_keys(uint64_t number) {
    if (!connections_.at(number).tickets) return;
    const auto text = ticket_ring_->public_text();
    if (text)
        connections_.send(number, wire::TicketKeys{*text, unix_now(), enrolment_->ticket_list()});
}

void MarketTrust::tell_ticket_keys() {
    told_calendar_ = unix_now() - Loop::now();
    std::vector<uint64_t> agents;  // an agent that is not reached is dropped
    for (const auto& [name, number] : connections_.agents()) agents.push_back(number);
    for (const uint64_t number : agents)
        if (connections_.has(number)) tell_ticket_keys(number);
}

// The market's own certificate is renewed at half of its life, and soon again if that fails.
void MarketTrust::renew_own() {
    constexpr Nanos again = Nanos::from_s(60), often = Nanos::from_s(3'600);
    const trust::Identity& own = *tls_->identity();
    Nanos next = often;
    if (unix_now() >= own.own().renew_at()) {
        const auto renew = [&]() -> Status {
            TRY_ASSIGN(auto chain, enrolment_->renew_own(own, unix_now()));
            TRY(trust::save_chain(config_.identity, chain));
            return tls_->renew(std::move(chain));
        };
        if (const Status renewed = renew(); renewed) {
            log_.info("the market's certificate is renewed",
                      {{"until", trust::date_text(own.own().ends())}});
        } else {
            next = again;
            log_.limited("renew", Loop::now(), Level::error,
                         "the market's certificate cannot be renewed",
                         {{"WHY", renewed.error()}, {"until", trust::date_text(own.own().ends())}});
        }
    }
    turn_ticket_keys();
    renew_timer_ = loop_.after(next, [this] { renew_own(); });
}

Status MarketTrust::is_certified(const Connection& c, const NodeName& node) const {
    if (!tls_) return {};
    const trust::Peer* const peer = c.channel->peer();
    if (!peer && connections_.takes_insecure()) return enrolment_->may_lack(node);
    if (!peer)
        return fail(CauseCode::not_allowed,
                    "a peer without a certificate may only join (souk setup node --join)");
    if (!peer->subject.roles.within(trust::node_roles))
        return fail(CauseCode::not_allowed,
                    "the certificate of " + peer->subject.name + " is of no node");
    if (peer->subject.name != node)
        return fail(
            CauseCode::not_allowed,
            "the peer says it is " + node + ", its certificate that it is " + peer->subject.name);
    return {};
}

Status MarketTrust::greet_joiner(Connection& c, const wire::Hello& hello) {
    if (!tls_)
        return fail(CauseCode::not_possible,
                    "this market runs without certificates: there is nothing to join");
    c.kind = Connection::Kind::joiner;
    c.node = hello.node;
    return {};
}

Status MarketTrust::greet_operator(Connection& c) {
    const trust::Peer* const peer = c.channel->peer();
    if (!peer || (peer->subject.roles != trust::only(trust::Role::operator_) &&
                  peer->subject.roles != trust::only(trust::Role::owner)))
        return fail(CauseCode::not_allowed,
                    "this is the market; it talks to agents and operators here");
    const auto is_his = [&](const auto& other) {
        return other.second.kind == Connection::Kind::tool && !other.second.local &&
               other.second.node == peer->subject.name;
    };
    if (std::ranges::count_if(connections_.all(), is_his) >= operator_connections)
        return fail(CauseCode::too_many, "too many connections of operator " + peer->subject.name);
    c.kind = Connection::Kind::tool;
    c.node = peer->subject.name;
    return {};
}

// The kernel's word counts on the unix socket, a certificate is an
// operator's, and an agent's word for its users, of whom root is none.
uint32_t MarketTrust::speaks_for(const Connection& c, const wire::CtlRequest& request) const {
    if (c.local) return c.uid;
    // A node's owner sees what anybody may, such as where that node is.
    if (c.kind == Connection::Kind::tool)
        return c.channel->peer()->subject.roles.has(trust::Role::operator_) ? 0 : nobody;
    // The daemon asks these for itself.
    if (request.verb == "ledger-seen" || request.verb == "promise-missed") return request.uid;
    // A token that names users speaks for no other user, whatever its holder would ask.
    const trust::Peer* const peer = c.channel->peer();
    if (enrolment_ && peer && !enrolment_->may_vouch(peer->key, request.uid)) return nobody;
    if (!has_role(c, wire::frame::job_report)) return nobody;
    const bool operates = !tls_ || config_.nodes_operate;
    return request.uid == 0 && !operates ? nobody : request.uid;
}

// A node that lends its time alone
// has nothing to say of jobs and money, and one that is a home alone offers none.
bool MarketTrust::has_role(const Connection& c, wire::FrameType type) {
    const trust::Peer* const peer = c.channel->peer();
    return !peer || wire::role_to_market(peer->subject.roles, type);
}

// A home speaks for the users that its token names (souk token create --users), and for all if it
// names none, also of their money, but for root's: that is the operator's. Empty: it may.
std::string MarketTrust::why_no_job(const Connection& c, uint32_t uid) const {
    if (!tls_) return "";
    if (!has_role(c, wire::frame::job_report)) return ", whose certificate says that it is no home";
    if (uid == 0 && config_.market.metered && !config_.nodes_operate)
        return ", since root's account is the operator's (nodes_operate)";
    const trust::Peer* const peer = c.channel->peer();
    if (!peer || enrolment_->may_vouch(peer->key, uid)) return "";
    const std::string users = enrolment_->users_of(peer->key);
    return users.empty() ? ", whose number is of another realm (souk token create --users)"
                         : ", which speaks for users " + users;
}

bool MarketTrust::may_vouch(uint64_t number, const Connection& c, JobReport& report) {
    const trust::Peer* const peer = tls_ ? c.channel->peer() : nullptr;
    if (peer && enrolment_ && enrolment_->is_of_another(peer->key, report.uid, report.user))
        report.user = std::to_string(report.uid);
    const std::string no = why_no_job(c, report.uid);
    if (no.empty()) return true;
    // A job that was let in goes on to its end, also if a token has named its user's number since.
    const market::Job* const known = market_.find(report.id);
    if (known && known->phase() != JobPhase::finished && report.uid != 0 &&
        known->record.report.uid == report.uid && has_role(c, wire::frame::job_report))
        return true;
    const std::string why =
        "the market takes no job of user " + std::to_string(report.uid) + " from " + c.node + no;
    log_.limited("vouch " + c.node, Loop::now(), Level::warning, "a job was refused",
                 {{"JOB", report.id.text()}, {"NODE", c.node}, {"WHY", why}});
    JobNote note;
    note.id = report.id;
    note.comment = why;
    note.settled = report.phase == JobPhase::finished;
    connections_.send(number, note);
    return false;
}

// Orders of an operator from another host are on record with his name, and orders by a page with
// the user whose souk-web it is.
void MarketTrust::audit(const Connection& c, const wire::CtlRequest& request, bool by_page) const {
    constexpr std::string_view orders[] = {
        "cancel",      "move",    "freeze",   "thaw",        "release",  "hold",     "user-limit",
        "backup",      "node",    "set",      "deposit",     "withdraw", "transfer", "payout",
        "node-forget", "project", "peer-add", "peer-remove", "give"};
    if ((!by_page && (c.local || c.kind != Connection::Kind::tool)) ||
        std::find(std::begin(orders), std::end(orders), request.verb) == std::end(orders))
        return;
    std::string words;
    for (const std::string& word : request.args) words += (words.empty() ? "" : " ") + word;
    log_.notice(by_page ? "a word by a page" : "an operator's word",
                {{"verb", request.verb},
                 {"words", words.substr(0, 200)},
                 {"uid", static_cast<int64_t>(request.uid)},
                 {"operator", c.node},
                 {"from", c.local ? "uid " + std::to_string(c.uid) : c.host}});
}

Status MarketTrust::certify(uint64_t number, const Connection& c, const wire::Frame& f) {
    const bool joins = c.kind == Connection::Kind::joiner;
    if (!enrolment_ || f.type != (joins ? wire::frame::join : wire::frame::renew))
        return fail(CauseCode::not_allowed, "a frame of type " +
                                                std::to_string(static_cast<unsigned>(f.type)) +
                                                " is not for the market from such a peer");
    const auto made = [&]() -> Result<wire::Certified> {
        if (joins) {
            TRY_ASSIGN(const auto join, wire::unpack<wire::Join>(f.body));
            TRY_ASSIGN(auto certified, enrolment_->join(c.node, join, unix_now()));
            if (connections_.takes_insecure()) certified.insecure_until = config_.insecure_until;
            return certified;
        }
        if (!c.channel->peer())
            return fail(CauseCode::not_allowed, "who has no certificate has none to renew");
        TRY_ASSIGN(const auto renew, wire::unpack<wire::Renew>(f.body));
        return enrolment_->renew(*c.channel->peer(), renew, unix_now());
    }();
    if (!made) return tl::unexpected(made.error());
    log_.notice(joins ? "a node has joined" : "a certificate is renewed",
                {{"NODE", c.node}, {"from", c.host}});
    state_.journal().then(
        [this, number, certified = *made] { connections_.send(number, certified); });
    steps_.wake();
    return {};
}

void MarketTrust::question(uint64_t number, const Connection& c, const wire::CtlRequest& request) {
    const auto ask = [&]() -> Result<std::string> {
        if (request.uid != 0)
            return fail(CauseCode::not_allowed,
                        "only an operator may do that: root, on the market");
        if (!enrolment_)
            return fail(CauseCode::not_possible,
                        "this market runs without certificates: souk setup market");
        return enrolment_->answer(request.verb, request.args, unix_now());
    };
    const auto answer = ask();
    wire::CtlReply reply{request.request, answer.has_value(), {}, {}, {}};
    if (answer)
        reply.json = *answer;
    else
        reply.error = as_asked(answer.error());
    if (answer && !request.verb.ends_with("-list")) {
        log_.notice("an operator's word", {{"verb", request.verb},
                                           {"uid", static_cast<int64_t>(request.uid)},
                                           {"operator", c.node}});
        if (request.verb == "node-revoke") state_.journal().then([this] { revoked(); });
    }
    replies_.add(number, std::move(reply));
}

void MarketTrust::met(const Connection& c, const NodeName& node) {
    if (!enrolment_) return;
    if (const trust::Peer* const peer = c.channel->peer())
        return enrolment_->met(*peer, unix_now());
    log_.limited(
        "insecure " + node, Loop::now(), Level::warning, "a node comes without a certificate",
        {{"NODE", node}, {"from", c.host}, {"until", trust::date_text(config_.insecure_until)}});
}

void MarketTrust::tell_lists(uint64_t number) {
    if (!enrolment_) return;
    connections_.send(number, wire::Revoked{enrolment_->signed_list()});
    tell_ticket_keys(number);
}

std::vector<NodeName> MarketTrust::uncertified() const {
    std::vector<NodeName> names;
    if (!tls_) return names;
    for (const auto& [name, number] : connections_.agents())
        if (!connections_.at(number).channel->peer()) names.push_back(name);
    return names;
}

// Names the nodes that still come without: each hour, and in the minute before the end.
void MarketTrust::tell_insecure() {
    constexpr Nanos often = Nanos::from_s(3'600), last_call = Nanos::from_s(60);
    const Nanos now = Loop::now();
    const bool ends = config_.insecure_until - unix_now() <= last_call;
    if (told_insecure_ != Nanos::never() && !ends && now < told_insecure_ + often) return;
    const auto names = uncertified();
    if (names.empty()) return;  // they may come any time
    told_insecure_ = now;
    std::string list;
    for (const NodeName& name : names)
        if (list.size() < 500) list += (list.empty() ? "" : " ") + name;
    log_.warning("these nodes come without a certificate",
                 {{"nodes", list},
                  {"count", static_cast<int64_t>(names.size())},
                  {"until", trust::date_text(config_.insecure_until)}});
}

// The time is looked at each minute at least, so that a clock that is set is seen.
void MarketTrust::watch_insecure() {
    constexpr Nanos often = Nanos::from_s(60);
    if (config_.insecure_until.ns == 0) return;
    const Nanos left = config_.insecure_until - unix_now();
    if (left.ns > 0) {
        tell_insecure();
        insecure_timer_ = loop_.after(std::min(left, often), [this] { watch_insecure(); });
        return;
    }
    const auto names = uncertified();
    log_.notice("the time without certificates is over",
                {{"ended", trust::date_text(config_.insecure_until)},
                 {"without", static_cast<int64_t>(names.size())}});
    for (const NodeName& name : names)
        connections_.drop(connections_.agents().at(name),
                          "the market takes nodes with certificates alone from now on");
}

// All nodes are told, and connections of keys that are revoked end.
void MarketTrust::revoked() {
    tls_->revoke(enrolment_->revoked());
    std::vector<uint64_t> gone, told;
    for (const auto& [number, c] : connections_.all()) {
        const trust::Peer* const peer = c.channel->peer();
        const bool lacks = !peer && c.kind == Connection::Kind::agent;
        if (peer ? enrolment_->revoked().has(peer->key) : lacks && !enrolment_->may_lack(c.node))
            gone.push_back(number);
        else if (c.kind == Connection::Kind::agent)
            told.push_back(number);
    }
    for (const uint64_t number : gone) connections_.drop(number, "its certificate was revoked");
    for (const uint64_t number : told)
        connections_.send(number, wire::Revoked{enrolment_->signed_list()});
}

}  // namespace souk
