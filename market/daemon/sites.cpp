// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/sites.hpp"

#include <sys/random.h>

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/zone.hpp"
#include "kernel/sys/net/socket.hpp"
#include "kernel/trust/site_card.hpp"
#include "market/wire/site_codec.hpp"

namespace souk {
namespace {

constexpr const char* kind_peer = "site-peer";
constexpr size_t peers_max = 256, questions_each_max = 128, questions_user_max = 16;
constexpr Nanos peer_connect_limit = Nanos::from_s(3), peer_pause_min = Nanos::from_ms(100),
                peer_pause_max = Nanos::from_s(30);
// A peer may ask so much at once, and go on with one question each time that this has passed.
constexpr Nanos question_cost = Nanos::from_ms(15), questions_burst = Nanos::from_s(5);
// All jobs of a site are told again when it comes back, so that many words come at once.
constexpr Nanos word_cost = Nanos::from_us(200), words_burst = Nanos::from_s(20);
// An honest peer says one in a second at most, and some at once when it is connected.
constexpr Nanos level_cost = Nanos::from_ms(200), levels_burst = Nanos::from_s(60);
constexpr int64_t book_cost = 4;       // a page of a book counts as so many questions
constexpr size_t list_usual = 10'000;  // of so many jobs and nodes a question costs once more
constexpr Nanos stood_well = Nanos::from_s(10);

// The connection is the site's, whatever is said on it yet.
bool is_of(const Connection& c, const std::string& site) {
    const trust::Peer* const who = c.channel ? c.channel->peer() : nullptr;
    const bool came =
        who && who->subject.roles == trust::only(trust::Role::site) && who->subject.name == site;
    return came || ((c.kind == Connection::Kind::site || c.kind == Connection::Kind::called) &&
                    c.node == site);
}

// The market of one site asks that of another for what anybody may see, and changes nothing.
bool is_for_sites(std::string_view verb) {
    constexpr std::string_view verbs[] = {"status",       "list-jobs",   "list-providers",
                                          "reservations", "plan",        "job",
                                          "why",          "site-entries"};
    return std::ranges::find(verbs, verb) != std::end(verbs);
}

// The words of these are ids of jobs, and names of nodes.
bool names_jobs(std::string_view verb) {
    constexpr std::string_view verbs[] = {"job",    "why",   "story",   "load", "output",
                                          "cancel", "hold",  "release", "move", "freeze",
                                          "thaw",   "await", "offers",  "give"};
    return std::ranges::find(verbs, verb) != std::end(verbs);
}

std::string said_of_site(const std::string& site) { return "site " + site; }

uint64_t other_than_others() {
    uint64_t seed = 0;
    if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = static_cast<uint64_t>(Loop::now().ns);
    return seed;
}

// `money`: the asker may see what the two may owe.
void write_terms(JsonWriter& j, const SiteTerms& terms, bool money) {
    const auto list = [&](const char* key, const std::vector<std::string>& names) {
        if (names.empty()) return;
        j.key(key).begin_array();
        for (const std::string& name : names) j.value(name);
        j.end_array();
    };
    j.begin_object().field("most_cpus", int64_t{terms.most_cpus});
    list("users", terms.users);
    list("projects", terms.projects);
    if (!terms.hours.empty()) j.field("hours", terms.hours);
    if (terms.least > Money{}) j.field("least", terms.least);
    if (money && terms.credit) j.field("credit", *terms.credit);
    j.end_object();
}

// After a peer has been welcomed it says no more than another site may, and why it ends.
uint32_t site_to_caller(wire::FrameType type) {
    return type == wire::frame::error_text ? wire::market_words(type) : wire::site_to_market(type);
}

}  // namespace

Sites::Sites(Loop& loop, Log& log, const MarketConfig& config, JournalDb& state,
             Connections& connections, ReplyQueue& replies, SiteListener& listener)
    : loop_(loop),
      log_(log),
      config_(config),
      state_(state),
      connections_(connections),
      replies_(replies),
      listener_(listener),
      relayed_(loop, connections, questions_each_max, questions_user_max) {}

Status Sites::open(wire::Tls* tls) {
    tls_ = tls;
    name_ = config_.site;
    if (!tls_) return {};
    const trust::Certificate& root = tls_->identity()->root;
    root_ = root.digest();
    if (name_.empty()) name_ = root.site();
    TRY(state_.read_all(kind_peer, [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(const SitePeer record, wire::unpack<SitePeer>(row.value));
        if (record.name != row.key || !valid_site_name(record.name))
            return fail("it is of another name");
        known(record);
        return {};
    }));
    for (auto& [site, peer] : peers_)
        if (peer.record.account == 0) {  // of a version before
            TRY_ASSIGN(peer.record.account, free_account());
            state_.put(kind_peer, site, wire::pack(peer.record));
        }
    for (const auto& [site, peer] : peers_) listener_.peer_known(peer.record);
    know();
    return {};
}

void Sites::call_all() {
    calls_ = true;
    for (auto& [site, peer] : peers_) call(site);
}

void Sites::close() {
    calls_ = false;
    peers_.clear();
    relayed_.close();
}

Sites::Peer& Sites::known(const SitePeer& record) {
    const RetryPause pause(peer_pause_min, peer_pause_max, other_than_others());
    return peers_.insert_or_assign(record.name, Peer(record, pause)).first->second;
}

void Sites::know() {
    std::map<std::string, std::string> roots;
    for (const auto& [site, peer] : peers_) roots.emplace(peer.record.root, site);
    (void)tls_->know_sites(std::move(roots), wire::OfSites::markets);
    const wire::PeerSites told = for_agents();
    std::vector<uint64_t> agents;  // an agent that is not reached is dropped
    for (const auto& [name, number] : connections_.agents()) agents.push_back(number);
    for (const uint64_t number : agents)
        if (connections_.has(number) && connections_.at(number).sites)
            connections_.send(number, told);
}

wire::PeerSites Sites::for_agents() const {
    wire::PeerSites told;
    told.own = name_;
    for (const auto& [site, peer] : peers_) told.roots.push_back(peer.record.root + " " + site);
    return told;
}

void Sites::tell_agent(uint64_t number) {
    if (tls_ && connections_.at(number).sites) connections_.send(number, for_agents());
}

// A number that has an account is not given again: what a peer of before owes, or is owed, is
// there.
Result<uint32_t> Sites::free_account() const {
    uint32_t last = 0;
    for (const auto& [site, peer] : peers_) last = std::max(last, peer.record.account);
    for (bool is_known = true; is_known;) {
        if (last >= site_accounts_max)
            return fail(CauseCode::too_many, "no more sites can have an account in this market");
        TRY_ASSIGN(is_known, listener_.knows_account(market::site_account(++last)));
    }
    return last;
}

// ---- connections

void Sites::call(const std::string& site) {
    const auto it = peers_.find(site);
    if (!calls_ || it == peers_.end() || it->second.record.reached.empty()) return;
    Peer& peer = it->second;
    if (peer.called) return;
    peer.retry.cancel();
    const auto address = Address::parse(peer.record.reached);
    if (!address) return call_later(peer, address.error().message);
    auto connecting = loop_.connect(*address, peer_connect_limit, [this, &peer](Result<Fd> socket) {
        peer.connecting.close();
        if (const Status done = connected(peer, std::move(socket)); !done)
            call_later(peer, done.error().message);
    });
    if (!connecting) return call_later(peer, connecting.error().message);
    peer.connecting = std::move(*connecting);
}

Status Sites::connected(Peer& peer, Result<Fd> socket) {
    if (!socket) return tl::unexpected(socket.error());
    TRY_ASSIGN(
        const uint64_t number,
        connections_.add_called(std::move(*socket), peer.record.name,
                                tls_->connector(trust::only(trust::Role::site), peer.record.name)));
    wire::Hello hello;
    hello.role = wire::Role::site;
    hello.site = name_;
    hello.sites = true;
    hello.knows = knows_accounts | knows_news;
    connections_.send(number, hello);
    return {};
}

void Sites::call_later(Peer& peer, const std::string& why) {
    if (peer.trouble != why)
        log_.limited("site " + peer.record.name, Loop::now(), Level::warning,
                     "no connection to a peer",
                     {{"site", peer.record.name}, {"at", peer.record.reached}, {"WHY", why}});
    peer.trouble = why;
    peer.retry = loop_.after(peer.pause.next(), [this, site = peer.record.name] { call(site); });
}

void Sites::changed(Peer& peer, bool was_connected) {
    if (peer.connected() == was_connected) return;
    peer.since = unix_now();
    if (peer.connected()) {
        log_.notice("a peer is connected", {{"site", peer.record.name}});
        return listener_.site_up(peer.record.name);
    }
    log_.notice("a peer is not connected any more", {{"site", peer.record.name}});
    listener_.site_down(peer.record.name);
}

Status Sites::greet(uint64_t number, Connection& c, const wire::Hello& hello) {
    const trust::Peer* const who = c.channel->peer();
    if (!who || who->subject.roles != trust::only(trust::Role::site))
        return fail(CauseCode::not_allowed,
                    "only the market of a peer may call as a site (souk peer add, on both sides)");
    const auto it = peers_.find(who->subject.name);
    if (it == peers_.end())
        return fail(CauseCode::not_allowed, "site " + who->subject.name + " is no peer any more");
    Peer& peer = it->second;
    if (hello.site != peer.record.name)
        return fail(CauseCode::not_possible, "site " + peer.record.name +
                                                 ", as it is called here, calls itself " +
                                                 hello.site + ": exchange the cards anew");
    if (const auto old = peer.came) connections_.drop(*old, "replaced by a newer connection");
    const bool was_connected = peer.connected();
    c.kind = Connection::Kind::site;
    c.sites = hello.sites;
    c.settles = (hello.knows & knows_accounts) != 0;
    c.has_news = (hello.knows & knows_news) != 0;
    c.node = peer.record.name;
    peer.came = number;
    changed(peer, was_connected);
    // Its greeting is answered first.
    loop_.defer([this, site = peer.record.name] {
        if (const auto known = peers_.find(site); known != peers_.end()) tell_terms(known->second);
    });
    return {};
}

Status Sites::welcomed(uint64_t number, Connection& c, const wire::Frame& f) {
    if (f.type == wire::frame::error_text) {
        TRY_ASSIGN(const auto text, wire::unpack<wire::ErrorText>(f.body));
        return fail(text.text.code, "it says: " + text.text);
    }
    if (f.type != wire::frame::welcome) return fail("it does not begin with a welcome");
    TRY_ASSIGN(const auto welcome, wire::unpack<wire::Welcome>(f.body));
    TRY(wire::check_version(welcome.version, welcome.program));
    const auto it = peers_.find(c.node);
    if (it == peers_.end()) return fail("it is no peer any more");
    if (welcome.name != c.node)
        return fail("it calls itself " + welcome.name + ": exchange the cards anew");
    Peer& peer = it->second;
    const bool was_connected = peer.connected();
    c.kind = Connection::Kind::site;
    c.sites = (welcome.knows & knows_loans) != 0;
    c.settles = (welcome.knows & knows_accounts) != 0;
    c.has_news = (welcome.knows & knows_news) != 0;
    c.channel->allow(site_to_caller);
    peer.called = number;
    peer.called_at = Loop::now();
    peer.trouble.clear();
    changed(peer, was_connected);
    tell_terms(peer);
    return {};
}

void Sites::ended(uint64_t number, const Connection& c, const Error& error) {
    const auto it = peers_.find(c.node);
    if (it == peers_.end()) return;
    Peer& peer = it->second;
    const bool was_connected = peer.connected();
    const bool was_way = was_connected && peer.way() == number;
    if (peer.came == number) {
        peer.came.reset();
    } else if (peer.called == number || (c.kind == Connection::Kind::called && !peer.called)) {
        // A peer that welcomes and hangs up is called no more often than one that is away.
        if (peer.called && Loop::now() > peer.called_at + stood_well) peer.pause.reset();
        peer.called.reset();
        call_later(peer, error.message.empty() ? "it has closed the connection" : error.message);
    }
    if (!peer.connected()) relayed_.lost(said_of_site(c.node));
    changed(peer, was_connected);
    if (!was_way || !peer.connected()) return;
    // The words on their way may be lost, so all is said again on the other connection.
    listener_.site_down(peer.record.name);
    listener_.site_up(peer.record.name);
}

// ---- questions

// Which other site the words of the question name; empty: none. This site's name is taken from
// them. Errors: several sites, or a verb that is for a site's own market alone.
Result<std::string> Sites::foreign(wire::CtlRequest& request) const {
    std::string site;
    if (request.verb == "at") {
        if (request.args.size() < 2) return fail("at takes a site, and what is asked there");
        site = request.args[0];
        request.verb = request.args[1];
        request.args.erase(request.args.begin(), request.args.begin() + 2);
        if (!is_for_sites(request.verb))
            return fail(CauseCode::not_allowed,
                        request.verb + " is for a site's own market: ask there");
        if (site == name_) site.clear();
    }
    if (!names_jobs(request.verb)) return site;
    const bool moves = request.verb == "move";
    for (std::string& word : request.args) {
        if ((moves || request.verb == "await") && &word == request.args.data() + 1) {
            TRY(read_destination(word, moves));
            continue;
        }
        // "array=lab:n1.7[1-3]", "range=lab:n1.7-9"
        const size_t begin = word.starts_with("array=") || word.starts_with("range=") ? 6 : 0;
        const std::string of(of_site(std::string_view(word).substr(begin)).site);
        if (of.empty()) continue;
        if (of == name_) {
            word.erase(begin, of.size() + 1);
            continue;
        }
        if (!is_for_sites(request.verb) || (!site.empty() && site != of))
            return fail(CauseCode::not_allowed, word.substr(begin) + " is of site " + of + ": " +
                                                    request.verb + " is for its own market");
        site = of;
    }
    return site;
}

// A job may go to another site's node ("uni:n3") or to any there ("uni:", or "uni" if no node here
// has that name). The name of the own site is taken from its nodes.
Status Sites::read_destination(std::string& node, bool moves) const {
    if (peers_.contains(node) && !listener_.knows_node(node)) node += ':';
    const auto [site, rest] = of_site(node);
    if (site.empty()) return {};
    const std::string name(site);
    if (name == name_) {
        node.erase(0, name.size() + 1);
        return {};
    }
    if (!rest.empty() && !valid_node_name(rest))
        return fail(CauseCode::invalid, "'" + node.substr(0, 100) + "' is no node of a site");
    const auto peer = peers_.find(name);
    if (peer == peers_.end())
        return fail(CauseCode::not_found, "there is no peer " + name + " (souk peer list)");
    if (moves && !lends(name))
        return fail(CauseCode::away, "site " + name +
                                         " is not connected, or of a version that "
                                         "takes no jobs");
    return {};
}

bool Sites::refuse(uint64_t number, const wire::CtlRequest& request, const Error& why) {
    replies_.refuse(number, request, as_asked(why));
    return true;
}

bool Sites::takes(uint64_t number, wire::CtlRequest& request) {
    if (request.verb.starts_with("peer-")) {
        const auto answered = answer(request);
        if (!answered) return refuse(number, request, answered.error());
        replies_.add(number, {request.request, true, {}, *answered, {}});
        return true;
    }
    const auto site = foreign(request);
    if (!site) return refuse(number, request, site.error());
    if (site->empty()) return false;
    // The other market shows all that is between the sites, and this one's users are not its.
    const Status passed =
        request.verb == "site-entries" && request.uid != 0
            ? fail(CauseCode::not_allowed, "only root may see what sites owe each other")
            : pass(number, *site, request);
    if (!passed) refuse(number, request, passed.error());
    return true;
}

Status Sites::pass(uint64_t number, const std::string& site, const wire::CtlRequest& request) {
    const auto it = peers_.find(site);
    if (it == peers_.end())
        return fail(CauseCode::not_found, "there is no peer " + site + " (souk peer list)");
    Peer& peer = it->second;
    if (!peer.connected())
        return fail(CauseCode::away,
                    "site " + site + " is not connected" +
                        (peer.trouble.empty() ? std::string() : ": " + peer.trouble));
    ++peer.passed;
    return relayed_.pass(number, request, said_of_site(site), *connections_.at(peer.way()).channel,
                         false);
}

bool Sites::admits(uint64_t number, const Connection& c, wire::CtlRequest& request, size_t listed) {
    Peer& peer = peers_.at(c.node);
    ++peer.asked;
    const auto no = [&](CauseCode code, std::string why) {
        ++peer.refused;
        replies_.refuse(number, request, Cause(code, std::move(why)));
        return false;
    };
    const std::string verb = request.verb;
    if (!is_for_sites(verb))
        return no(CauseCode::not_allowed, "another site may not ask for " + verb.substr(0, 40));
    const int64_t questions = verb == "plan" ? plan_cost : verb == "site-entries" ? book_cost : 1;
    if (!charge(c.node, questions, listed))
        return no(CauseCode::too_many, "site " + c.node + " asks too much: again in a moment");
    const auto site = foreign(request);
    if (!site || !site->empty())
        return no(CauseCode::not_allowed,
                  "a site is asked about itself alone, and this is " + name_);
    return true;
}

// A list is walked over whole, however little of it is asked for.
bool Sites::charge(const std::string& site, int64_t questions, size_t listed) {
    questions *= 1 + static_cast<int64_t>(listed / list_usual);
    return peers_.at(site).questions.take(Nanos{question_cost.ns * questions}, questions_burst);
}

bool Sites::charge_word(const std::string& site) {
    return peers_.at(site).words.take(word_cost, words_burst);
}

bool Sites::charge_level(const std::string& site) {
    return peers_.at(site).levels.take(level_cost, levels_burst);
}

bool Sites::Share::take(Nanos cost, Nanos burst) {
    const Nanos now = Loop::now();
    if (free_at > now + burst) return false;
    free_at = std::max(free_at, now) + cost;
    return true;
}

Status Sites::answered(const Connection& c, const wire::Frame& f) {
    TRY_ASSIGN(wire::CtlReply reply, wire::unpack<wire::CtlReply>(f.body));
    reply.away = false;  // that is about a node's own market
    if (!reply.ok) reply.error = reply.error.within(said_of_site(c.node) + ": ");
    relayed_.answered(said_of_site(c.node), std::move(reply));
    return {};
}

// ---- terms

// One connection is enough, as what is said on either is the same.
void Sites::tell_terms(const Peer& peer) {
    if (peer.connected()) connections_.send(peer.way(), peer.record.terms);
}

Status Sites::told_terms(const Connection& c, const wire::Frame& f) {
    Peer& peer = peers_.at(c.node);
    if (!charge_level(c.node)) return fail(CauseCode::too_many, "it says its terms too often");
    TRY_ASSIGN(peer.told, wire::unpack<SiteTerms>(f.body));
    return {};
}

std::optional<market::SiteGuests::Site> Sites::guest_site(const std::string& site) const {
    const auto it = peers_.find(site);
    if (it == peers_.end()) return std::nullopt;
    const SitePeer& record = it->second.record;
    const int32_t second = second_of_week("", static_cast<int64_t>(unix_now().seconds()));
    return market::SiteGuests::Site{site, market::site_account(record.account), &record.terms,
                                    second};
}

bool Sites::lends(const std::string& site) const {
    const auto it = peers_.find(site);
    return it != peers_.end() && it->second.connected() && connections_.has(it->second.way()) &&
           connections_.at(it->second.way()).sites;
}

bool Sites::settles(const std::string& site) const {
    const auto it = peers_.find(site);
    return it != peers_.end() && it->second.connected() && connections_.has(it->second.way()) &&
           connections_.at(it->second.way()).settles;
}

std::vector<std::string> Sites::that_have_news() const {
    std::vector<std::string> sites;
    for (const auto& [site, peer] : peers_)
        if (peer.connected() && connections_.has(peer.way()) &&
            connections_.at(peer.way()).has_news)
            sites.push_back(site);
    return sites;
}

std::vector<std::string> Sites::that_let_come(const SiteWish& wish) const {
    std::vector<std::string> sites;
    for (const auto& [site, peer] : peers_)
        if (peer.connected() && is_wished(wish, site) && (!peer.told || peer.told->let_any()))
            sites.push_back(site);
    return sites;
}

Result<std::string> Sites::set_terms(const std::vector<std::string>& args) {
    if (args.size() < 2) return fail("peer-terms takes a site, and KEY=VALUE");
    const auto it = peers_.find(args[0]);
    if (it == peers_.end())
        return fail(CauseCode::not_found, "there is no peer " + args[0] + " (souk peer list)");
    TRY_ASSIGN(const SiteTerms terms, parse_site_terms({args.begin() + 1, args.end()}));
    SitePeer& record = it->second.record;
    record.terms = terms;
    state_.put(kind_peer, record.name, wire::pack(record));
    listener_.peer_known(record);
    log_.notice("terms of a peer are set", {{"site", record.name},
                                            {"most_cpus", static_cast<int64_t>(terms.most_cpus)},
                                            {"least", format_money(terms.least)}});
    state_.journal().then([this, site = args[0]] {
        if (const auto known = peers_.find(site); known != peers_.end()) tell_terms(known->second);
    });
    JsonWriter j;
    j.begin_object().field("site", record.name).key("terms");
    write_terms(j, terms, true);
    return j.end_object().take();
}

// ---- what operators say of peers

Result<std::string> Sites::answer(const wire::CtlRequest& request) {
    if (request.verb == "peer-list") return list(request.uid == 0);
    if (request.verb != "peer-add" && request.verb != "peer-remove" && request.verb != "peer-terms")
        return fail("the market does not know the verb '" + request.verb + "'");
    if (request.uid != 0)
        return fail(CauseCode::not_allowed, "only an operator may do that: root, on the market");
    if (!tls_)
        return fail(CauseCode::not_possible,
                    "this market runs without certificates, and its peers could not know it: souk "
                    "setup market");
    if (request.verb == "peer-terms") return set_terms(request.args);
    return request.verb == "peer-add" ? add(request.args) : remove(request.args);
}

Status Sites::may_add(const std::string& name, const std::string& root) const {
    const auto& own = tls_->identity()->chain;
    if (root == root_ ||
        std::ranges::any_of(own, [&](const auto& one) { return one.digest() == root; }))
        return fail(CauseCode::not_possible, "this is the card of this very market");
    if (name == name_)
        return fail(CauseCode::not_possible,
                    "both sites are called " + name +
                        ": one of them needs another name (`site` of marketd's configuration)");
    for (const auto& [site, peer] : peers_) {
        if ((site == name) != (peer.record.root == root))
            return fail(CauseCode::not_possible,
                        site == name ? "there is a peer " + name +
                                           " already, with another root: if it is gone, `souk peer "
                                           "remove " +
                                           name + "` first"
                                     : "this is the root of peer " + site +
                                           ": if it has another name now, `souk peer remove " +
                                           site + "` first");
    }
    if (!peers_.contains(name) && peers_.size() >= peers_max)
        return fail(CauseCode::too_many, "there are " + std::to_string(peers_max) + " peers");
    return {};
}

Result<std::string> Sites::add(const std::vector<std::string>& args) {
    if (args.size() != 2) return fail("peer-add takes a card and an address, or -");
    TRY_ASSIGN(const trust::SiteCard card, trust::parse_site_card(args[0]));
    const std::string reached = args[1] == "-" ? "" : args[1];
    if (!reached.empty()) TRY(Address::parse(reached));
    if (reached.empty() != card.address.empty())
        return fail("the card has an address exactly if it is looked up");
    TRY(may_add(card.name, card.root));
    SitePeer record{card.name, card.address, card.root, reached, unix_now()};
    const auto before = peers_.find(card.name);
    if (before == peers_.end()) {
        TRY_ASSIGN(record.account, free_account());
        record.nodes_had = listener_.held_by_nodes(card.name);
    } else {  // it is reached elsewhere now; what its jobs may do is the same
        record.terms = before->second.record.terms;
        record.account = before->second.record.account;
        record.nodes_had = before->second.record.nodes_had;
        before->second.record = record;
    }
    state_.put(kind_peer, record.name, wire::pack(record));
    log_.notice("a peer is added",
                {{"site", card.name}, {"at", card.address}, {"root", card.root}});
    state_.journal().then([this, record] {
        if (const auto again = peers_.find(record.name); again != peers_.end()) {
            again->second.pause.reset();
        } else {
            known(record);
            listener_.peer_known(record);
            know();
        }
        if (Peer& peer = peers_.at(record.name); !peer.called) call(record.name);
    });
    JsonWriter j;
    j.begin_object().field("site", card.name).field("root", card.root).end_object();
    return j.take();
}

Result<std::string> Sites::remove(const std::vector<std::string>& args) {
    if (args.size() != 1) return fail("peer-remove takes a site");
    if (!peers_.contains(args[0]))
        return fail(CauseCode::not_found, "there is no peer " + args[0] + " (souk peer list)");
    state_.erase(kind_peer, args[0]);
    log_.notice("a peer is removed", {{"site", args[0]}});
    state_.journal().then([this, site = args[0]] {
        const auto gone = peers_.find(site);
        if (gone == peers_.end()) return;
        relayed_.lost(said_of_site(site));
        std::vector<uint64_t> numbers;
        for (const auto& [number, c] : connections_.all())
            if (is_of(c, site)) numbers.push_back(number);
        peers_.erase(gone);
        listener_.peer_gone(site);
        know();
        listener_.site_down(site);
        for (const uint64_t number : numbers)
            connections_.drop(number,
                              Cause(CauseCode::not_allowed, "this site is no peer here any more"));
    });
    JsonWriter j;
    j.begin_object().field("site", args[0]).end_object();
    return j.take();
}

std::string Sites::list(bool money) const {
    JsonWriter j;
    j.begin_object().field("site", name_).field("root", root_).field("listen", config_.listen);
    j.key("peers").begin_array();
    for (const auto& [site, peer] : peers_) {
        const SitePeer& r = peer.record;
        j.begin_object().field("site", site).field("address", r.address).field("root", r.root);
        j.field("added_unix_s", r.added.seconds()).field("connected", peer.connected());
        j.field("called", peer.called.has_value()).field("calls", peer.came.has_value());
        if (peer.since.ns > 0) j.field("since_unix_s", peer.since.seconds());
        if (!peer.trouble.empty()) j.field("trouble", peer.trouble);
        write_terms(j.key("terms"), r.terms, money);
        if (peer.told) write_terms(j.key("told"), *peer.told, money);
        j.field("asked_it", peer.passed)
            .field("it_asked", peer.asked)
            .field("refused", peer.refused);
        listener_.describe_peer(site, money, j);
        j.end_object();
    }
    return j.end_array().end_object().take();
}

}  // namespace souk
