// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/marketd.hpp"

#include <sys/stat.h>

#include <cerrno>

#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/wire/either.hpp"
#include "market/daemon/ledger_replies.hpp"
#include "market/store/records.hpp"
#include "market/wire/codec.hpp"

namespace souk {
namespace {

// connections of marketctl at one time
constexpr UserShare::Bounds tools_bounds{.all = 256, .reserve = 32, .each = 64};
constexpr size_t tool_queue_bytes_max = wire::json_bytes_max + 64 * 1024;

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

// An agent that listens on every address is where its connection comes from.
std::string reachable(const std::string& address, const std::string& peer_host) {
    const std::string host = host_of(address);
    if (host != "0.0.0.0" && host != "[::]") return address;
    return peer_host + address.substr(address.rfind(':'));
}

Status make_directory(const std::string& path) {
    for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
        const std::string part = path.substr(0, at);
        if (::mkdir(part.c_str(), 0755) < 0 && errno != EEXIST)
            return fail_errno("state directory " + part, errno);
        if (at == std::string::npos) return {};
    }
}

}  // namespace

Marketd::Marketd(Loop& loop, Log& log, const MarketConfig& config, StateDb db)
    : loop_(loop),
      log_(log),
      config_(config),
      state_(std::move(db)),
      market_(config.market),
      tools_share_(tools_bounds),
      strangers_(config.strangers) {}

Result<std::unique_ptr<Marketd>> Marketd::open(Loop& loop, Log& log, const MarketConfig& config) {
    TRY(make_directory(config.state));
    TRY_ASSIGN(StateDb db,
               StateDb::open(config.state, market_schema_version, market_schema_oldest));
    std::unique_ptr<Marketd> daemon(new Marketd(loop, log, config, std::move(db)));
    if (!config.web_user.empty()) {
        const auto& accounts = daemon->accounts_;
        TRY_ASSIGN(const auto known,
                   accounts.told([&] { return accounts.named(config.web_user); }));
        if (!known) return fail("web_user: this machine has no user '" + config.web_user + "'");
    }
    TRY(daemon->load());
    TRY(daemon->open_trust());
    daemon->say_aside();
    TRY(daemon->listen());
    if (!daemon->tls_)
        log.warning("insecure: whoever reaches the port may act as any node and as an operator");
    if (!config.solver_program.empty()) {
        daemon->program_ = std::make_unique<SolverProgram>(
            loop, log, config.solver_program, config.solver_places, config.solver_patience,
            [d = daemon.get()](auto allocation) { d->solver_answered(std::move(allocation)); });
        daemon->market_.set_external(true);
    }
    if (!config.metrics.empty()) {
        daemon->metrics_page_ =
            std::make_unique<MetricsPage>(loop, [d = daemon.get()] { return d->metrics(); });
        if (const Status listens = daemon->metrics_page_->listen(config.metrics); !listens)
            return wrap("metrics: " + config.metrics, listens.error());
    }
    if (!config.status_file.empty())
        daemon->status_file_ = std::make_unique<StatusFile>(
            loop, log, "marketd", config.status_file, config.status_every,
            [d = daemon.get()] { return d->status_lines(); });
    daemon->trim_finished();
    daemon->wake();
    return daemon;
}

namespace {
// The name under which the record is kept.
std::string key_of(const market::MetaRecord&) { return "market"; }
std::string key_of(const market::NodeRecord& r) { return r.node; }
std::string key_of(const market::JobRecord& r) { return r.report.id.text(); }
std::string key_of(const market::AccountRecord& r) { return r.holder.text(); }
std::string key_of(const market::UserRecord& r) { return std::to_string(r.uid); }
std::string key_of(const market::PriceRecord& r) { return std::to_string(r.minute); }

// All records of one kind, into the machine: how many there are.
template <class Record>
Result<size_t> load_all(JournalDb& db, std::string_view kind, market::Market& market) {
    size_t n = 0;
    TRY(db.read_all(kind, [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(auto record, wire::unpack<Record>(row.value));
        if (key_of(record) != row.key) return fail("it is of " + key_of(record));
        market.load(std::move(record));
        ++n;
        return {};
    }));
    return n;
}
}  // namespace

Status Marketd::load() {
    TRY_ASSIGN(book_, ReceiptBook::open(state_.db(), state_));
    TRY_ASSIGN(finished_, FinishedJobs::open(state_.db(), state_));
    TRY_ASSIGN(const size_t metas, load_all<market::MetaRecord>(state_, kind_meta, market_));
    if (metas == 0 && state_.is_aside(kind_meta, key_of(market::MetaRecord{})))
        market_.load(meta_again());
    TRY_ASSIGN(const size_t nodes, load_all<market::NodeRecord>(state_, kind_node, market_));
    TRY_ASSIGN(const size_t jobs, load_all<market::JobRecord>(state_, kind_job, market_));
    TRY(load_all<market::AccountRecord>(state_, kind_account, market_));
    load_lost_accounts();
    TRY(load_all<market::UserRecord>(state_, kind_user, market_));
    TRY(load_all<market::PriceRecord>(state_, kind_price, market_));
    usage_.emplace(state_.db(), state_);
    trim_usage();
    market_.set_calendar(calendar());
    open_decision_log();
    market_.tell_to(trace_.listener());
    market_.started(Loop::now());
    if (state_.db().log_missing()) warn(StateDb::log_missing_text(state_.db().path()));
    for (const market::SolverSetting& set : market_.settings())
        log_.info("set by hand, before what is configured",
                  {{"what", set.what},
                   {"value", set.value},
                   {"WHY", set.why},
                   {"uid", static_cast<int64_t>(set.uid)}});
    if (jobs + nodes > 0) log_.info("records read", {{"jobs", jobs}, {"nodes", nodes}});
    return {};
}

// The record of the market itself, as far as other records say what it held. No order was given yet
// with the number of this microsecond, so orders go on from there; nothing is brought forward into
// the ledger a second time.
market::MetaRecord Marketd::meta_again() const {
    market::MetaRecord meta;
    meta.seq_limit = static_cast<uint64_t>((Loop::now() + calendar()).ns / 1'000);
    meta.finish_seq = finished_->newest();
    meta.ledger = meta.finished_retired = true;
    meta.receipts = book_->newest().seq;
    return meta;
}

// A balance is the sum of an account's receipts: so much of an account whose record cannot be read
// is known.
void Marketd::load_lost_accounts() {
    std::map<std::string, market::AccountRecord> lost;
    for (const JournalDb::SetAside& a : state_.set_aside())
        if (a.kind == kind_account) lost.emplace(a.key, market::AccountRecord{});
    if (lost.empty()) return;
    for (std::optional<uint64_t> before = UINT64_MAX; before;) {
        const auto page = book_->page({}, *before, SIZE_MAX);
        if (!page) return warn("balances are not summed up: " + page.error().message);
        for (const ReceiptBook::Entry& entry : page->entries)
            for (const market::Posting& p : market::postings(entry.receipt)) {
                const auto account = lost.find(p.holder.text());
                if (account == lost.end()) continue;
                account->second.holder = p.holder;
                account->second.balance += p.amount;
                if (entry.receipt.moves()) account->second.moved += p.amount;
            }
        before = page->before;
    }
    for (auto& [key, account] : lost)
        if (account.holder.text() == key) market_.load(std::move(account));
}

void Marketd::say_aside() {
    for (const JournalDb::SetAside& a : state_.set_aside())
        log_.error("a record of the state cannot be read, and is set aside",
                   {{"RECORD", a.kind + " " + a.key},
                    {"WHY", a.why},
                    {"do", "see docs/state-on-disk.md; souk doctor lists them"}});
    for (const auto& [job, address] : market_.lost_addresses())
        log_.error("two jobs have one address: the one that was submitted later has lost it",
                   {{"JOB", job.text()},
                    {"address", address.text()},
                    {"do",
                     "it stays where it runs, and its next ticket gives it no address: "
                     "cancel it, and submit it anew"}});
}

Status Marketd::listen() {
    constexpr Nanos listen_patience = Nanos::from_s(2);
    TRY_ASSIGN(const Address for_agents, Address::parse(config_.listen));
    TRY_ASSIGN(Fd tcp, listen_stream(for_agents, 1024, 0600, listen_patience));
    TRY_ASSIGN(const Address bound, Address::local(tcp.get()));
    port_ = bound.port();
    TRY_ASSIGN(const Address for_tools, Address::parse("unix:" + config_.socket));
    if (const size_t slash = config_.socket.rfind('/'); slash != std::string::npos && slash > 0)
        TRY(make_directory(config_.socket.substr(0, slash)));
    TRY_ASSIGN(Fd unix_socket, listen_stream(for_tools, 1024, 0666, listen_patience));
    const auto trouble = [this](const Error& e) {
        log_.limited("accept", Loop::now(), Level::warning, "cannot accept connections",
                     {{"WHY", e}});
    };
    const auto agent = [this](Fd fd) { accept(std::move(fd), false); };
    const auto tool = [this](Fd fd) { accept(std::move(fd), true); };
    TRY_ASSIGN(agents_listener_, loop_.listen(std::move(tcp), agent, trouble));
    TRY_ASSIGN(tools_listener_, loop_.listen(std::move(unix_socket), tool, trouble));
    return {};
}

// -------------------------------------------------------------------------------------------
// connections

void Marketd::accept(Fd socket, bool local) {
    const auto refused = [this](const char* key, std::string_view what, const std::string& why) {
        log_.limited(key, Loop::now(), Level::warning, what, {{"WHY", why}});
    };
    Connection c;
    c.local = local;
    const uint64_t number = next_number_++;
    if (local) {
        const auto cred = peer_cred(socket.get());
        if (!cred)
            return refused("cred", "a local connection without identity", cred.error().message);
        c.uid = cred->uid;
        auto place = tools_share_.take(c.uid);
        if (!place) {
            wire::send_last_word(socket.get(), place.error());
            return refused(("room of " + std::to_string(c.uid)).c_str(),
                           "a connection was not taken", place.error().message);
        }
        c.place = std::move(*place);
    } else {
        const auto peer = Address::peer(socket.get());
        if (!peer) return;  // gone already
        c.host = host_of(peer->text());
        if (!take_stranger(number, c.host))
            return refused("room", "a connection was not taken", "too many come from " + c.host);
        (void)set_no_delay(socket.get());
    }
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, number](const wire::Frame& f) { frame(number, f); };
    handlers.on_closed = [this, number](const Error& e) { closed(number, e); };
    wire::ChannelOptions options;
    options.words = wire::market_words;
    options.side = wire::Side::acceptor;
    options.first_frame_limit = config_.hello_patience;
    options.keepalive = local ? Nanos{0} : config_.keepalive;
    options.send_queue_bytes_max =
        local ? tool_queue_bytes_max : static_cast<size_t>(config_.agent_queue_mb) << 20;
    auto channel = wire::Channel::open(loop_, std::move(socket), std::move(handlers), options,
                                       local              ? wire::plain_transport()
                                       : takes_insecure() ? wire::either_transport(tls_->acceptor())
                                                          : wire::acceptor(tls_.get()));
    if (!channel) {
        strangers_.gone(number);
        return refused("open", "a connection was not taken", channel.error().message);
    }
    c.channel = std::move(*channel);
    connections_.emplace(number, std::move(c));
}

// Somebody else may have to go for it.
bool Marketd::take_stranger(uint64_t number, const std::string& host) {
    const Strangers::Taken taken = strangers_.take(number, host, Loop::now());
    if (taken.goes)
        drop(*taken.goes, Cause(CauseCode::too_many, "its place is wanted for a newer connection"));
    if (taken.in && !strangers_timer_.waiting()) end_strangers();
    return taken.in;
}

// A channel ends by itself when nothing is said. A joiner has said who he wants to be, and may not
// wait for ever to say more.
void Marketd::end_strangers() {
    const Nanos patience = config_.hello_patience + config_.hello_patience;
    while (const auto number = strangers_.since(Loop::now() - patience))
        drop(*number, Cause("it has not said in time who it is"));
    if (strangers_.size() > 0)
        strangers_timer_ = loop_.after(config_.hello_patience, [this] { end_strangers(); });
}

template <class T>
void Marketd::send(uint64_t number, const T& message) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) return;
    const Status sent = it->second.channel->send(wire::frame_type<T>, wire::pack(message));
    if (!sent) drop(number, sent.error());
}
// Other files send these.
template void Marketd::send(uint64_t number, const JobNote& message);
template void Marketd::send(uint64_t number, const wire::CtlReply& message);
template void Marketd::send(uint64_t number, const wire::Certified& message);
template void Marketd::send(uint64_t number, const wire::TicketKeys& message);
template void Marketd::send(uint64_t number, const wire::Revoked& message);

void Marketd::frame(uint64_t number, const wire::Frame& f) {
    Connection& c = connections_.at(number);
    if (input_at_ == Nanos::never()) input_at_ = Loop::now();
    const Status taken = c.kind == Kind::greeting ? greet(number, c, f)
                         : c.kind == Kind::agent  ? from_agent(number, c, f)
                         : c.kind == Kind::joiner ? certify(number, c, f)
                                                  : question(number, c, f);
    if (!taken) drop(number, taken.error());
}

Status Marketd::greet(uint64_t number, Connection& c, const wire::Frame& f) {
    if (f.type != wire::frame::hello) return fail("the connection does not begin with a hello");
    TRY_ASSIGN(const wire::Hello hello, wire::unpack<wire::Hello>(f.body));
    TRY(wire::check_version(hello.version, hello.program));
    if (c.local) {
        if (hello.role != wire::Role::tool)
            return fail("this socket is for marketctl; agents connect to " + config_.listen);
        c.kind = Kind::tool;
    } else if (hello.role == wire::Role::joiner) {
        TRY(greet_joiner(c, hello));
    } else if (hello.role == wire::Role::tool && tls_) {
        TRY(greet_operator(c));
    } else {
        if (hello.role != wire::Role::agent)
            return fail("this is the market; it talks to agents here");
        TRY(greet_agent(number, c, hello));
    }
    if (c.kind != Kind::joiner) strangers_.gone(number);
    c.channel->allow(c.kind == Kind::agent    ? wire::agent_to_market
                     : c.kind == Kind::joiner ? wire::joiner_to_market
                                              : wire::operator_to_market);
    send(number, wire::Welcome{wire::protocol_version, config_.name,
                               c.kind == Kind::agent ? reachable(hello.address, c.host) : "", false,
                               true, unix_now()});
    if (c.kind != Kind::agent || !enrolment_) return {};
    send(number, wire::Revoked{enrolment_->signed_list()});
    tell_ticket_keys(number);
    return {};
}

Status Marketd::greet_agent(uint64_t number, Connection& c, const wire::Hello& hello) {
    if (hello.node.empty() || hello.address.empty())
        return fail("an agent's hello needs its node name and its address");
    TRY(is_certified(c, hello.node));
    if (const auto old = agents_.find(hello.node); old != agents_.end()) {
        const Connection& first = connections_.at(old->second);
        const std::string& host = first.host;
        const trust::Peer *const before = first.channel->peer(), *const peer = c.channel->peer();
        if (before && (!peer || before->key != peer->key))
            return fail("node " + hello.node + " is connected already, with another key");
        if (!before && !peer && host != c.host)
            return fail("node " + hello.node + " is connected already, from " + host +
                        "; give this one another name");
        drop(old->second, "replaced by a newer connection");
    }
    if (const trust::Peer* const peer = c.channel->peer(); enrolment_ && peer)
        enrolment_->met(*peer, unix_now());
    else if (enrolment_)
        log_.limited("insecure " + hello.node, Loop::now(), Level::warning,
                     "a node comes without a certificate",
                     {{"NODE", hello.node},
                      {"from", c.host},
                      {"until", trust::date_text(config_.insecure_until)}});
    const std::string address = reachable(hello.address, c.host);
    TRY(market_.agent_connected(hello.node, address, Loop::now()));
    c.kind = Kind::agent;
    c.node = hello.node;
    c.answers = hello.answers;
    c.tickets = hello.tickets;
    agents_[c.node] = number;
    log_.info("agent connected", {{"NODE", c.node}, {"address", address}});
    wake();
    return {};
}

Status Marketd::from_agent(uint64_t number, Connection& c, const wire::Frame& f) {
    // A job's user is told, below.
    if (f.type != wire::frame::job_report && !has_role(c, f.type)) {
        log_.limited("role " + c.node, Loop::now(), Level::warning, "a word was left out",
                     {{"NODE", c.node},
                      {"type", static_cast<int64_t>(f.type)},
                      {"WHY", "its certificate is of a " +
                                  trust::text_of(c.channel->peer()->subject.roles) + " alone"}});
        return {};
    }
    if (f.type == wire::frame::ctl_request) return question(number, c, f);
    if (f.type == wire::frame::ctl_reply) return node_answers(c.node, f);
    if (f.type == wire::frame::renew) return certify(number, c, f);
    if (f.type == wire::frame::use_report) {
        TRY_ASSIGN(const UseReport use, wire::unpack<UseReport>(f.body));
        market_.use_report(c.node, use, Loop::now());
        tell_differences();
        wake();
        return {};
    }
    TRY_ASSIGN(const ToMarket message, wire::unpack_to_market(f.type, f.body));
    if (const auto* job = std::get_if<JobReport>(&message)) {
        if (!may_vouch(number, c, *job)) return {};
        // It would be a new job, and pay once more for what it has paid.
        if (state_.is_aside(kind_job, job->id.text())) return {};
        TRY(recall(job->id));
    }
    TRY(market_.report(c.node, message, Loop::now()));
    tell_differences();
    wake();
    return {};
}

// A home and a place did not agree on how long a job has run (market/core/use_check.hpp).
void Marketd::tell_differences() {
    for (const auto& [job, d] : market_.take_differences())
        log_.limited("use " + d.node, Loop::now(), Level::warning,
                     "a home and a node do not agree on how long a job has run",
                     {{"JOB", job.text()},
                      {"NODE", d.node},
                      {"EPOCH", d.epoch.n},
                      {"home", span_text(d.charged)},
                      {"node", span_text(d.measured)},
                      {"given back", format_money(d.cost)}});
    for (const auto& mark : market_.take_speed_marks())
        log_.warning(mark.found < mark.claimed
                         ? "programs run slower on a node than its owner's speed says"
                         : "programs run as fast on a node as its owner's speed says",
                     {{"NODE", mark.node}, {"speed", mark.claimed}, {"found", mark.found}});
}

// The market's machine knows the newest of the finished jobs alone.
Status Marketd::recall(const JobId& id) {
    if (market_.find(id)) return {};
    TRY_ASSIGN(auto known, finished_->find(id));
    if (known) market_.recall(std::move(*known));
    return {};
}

// A bounded number at once; the rest soon, and what grows too old each hour.
void Marketd::trim_finished() {
    constexpr size_t rows_max = 256;
    constexpr Nanos soon = Nanos::from_ms(10), later = Nanos::from_s(3'600);
    const bool by_age = config_.finished_age > Nanos{};
    const Nanos since = by_age ? Loop::now() + calendar() - config_.finished_age : Nanos{};
    const Result<bool> more = finished_->trim(config_.finished_max, since, rows_max);
    if (!more)
        log_.limited("trim", Loop::now(), Level::error, "cannot erase old finished jobs",
                     {{"WHY", more.error()}});
    const bool go_on = more && *more;
    if (go_on || by_age)
        trim_timer_ = loop_.after(go_on ? soon : later, [this] {
            trim_finished();
            wake();  // commits
        });
}

Status Marketd::question(uint64_t number, const Connection& c, const wire::Frame& f) {
    if (f.type != wire::frame::ctl_request)
        return fail("a frame of type " + std::to_string(static_cast<unsigned>(f.type)) +
                    " is not for the market");
    TRY_ASSIGN(wire::CtlRequest request, wire::unpack<wire::CtlRequest>(f.body));
    request.uid = speaks_for(c, request);
    if (answer_web(number, c, request)) return {};
    audit(c, request, false);
    if (Enrolment::takes(request.verb)) return trust_question(number, c, request);
    if (request.verb == "ledger-verify") {
        verify_ledger(number, request);
        return {};
    }
    if (request.verb == "backup") {
        begin_backup(number, c, request);
        return {};
    }
    if (request.verb == "await") {
        if (const Status taken = await_order(number, request); !taken) {
            replies_.push_back({number, {request.request, false, as_asked(taken.error()), {}, {}}});
        }
        wake();
        return {};
    }
    if (request.verb == "story" || request.verb == "load" || request.verb == "output") {
        if (const Status asked = ask_node(number, request); !asked)
            replies_.push_back({number, {request.request, false, as_asked(asked.error()), {}, {}}});
        wake();
        return {};
    }
    if (request.verb == "ledger-seen") {
        replies_.push_back({number, compare_ledger(c, request)});
        wake();
        return {};
    }
    if (request.verb == "promise-missed") {
        replies_.push_back({number, promise_missed(c, request)});
        wake();
        return {};
    }
    if (request.verb == "decisions") {
        replies_.push_back({number, decisions(request)});
        wake();
        return {};
    }
    if (request.verb == "quote") {
        quotes_.push_back({number, c.node, std::move(request)});
        wake();
        return {};
    }
    // Answers within one iteration are bounded as is what waits in the connection's queue.
    const size_t bound =
        c.local ? tool_queue_bytes_max : static_cast<size_t>(config_.agent_queue_mb) << 20;
    size_t waiting = 0;
    for (const Reply& r : replies_)
        if (r.connection == number) waiting += r.reply.json.size();
    if (waiting > bound)
        return fail("the send queue of " + std::to_string(bound) + " bytes is full");
    replies_.push_back(
        {number, answer(market_, *book_, *finished_, *usage_, request, face(), Loop::now())});
    if (request.verb == "set" && replies_.back().reply.ok)
        log_.info("the way of deciding was changed", {{"what", request.args[0]},
                                                      {"value", request.args[1]},
                                                      {"WHY", request.args[2]},
                                                      {"uid", static_cast<int64_t>(request.uid)}});
    wake();
    return {};
}

void Marketd::closed(uint64_t number, const Error& error) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) return;
    const Connection c = std::move(it->second);
    strangers_.gone(number);
    connections_.erase(it);
    if (c.kind == Kind::agent) {
        agents_.erase(c.node);
        relays_lost(c.node);
        log_.info("agent lost", {{"NODE", c.node}, {"WHY", error}});
        market_.agent_lost(c.node, Loop::now());
        return wake();
    }
    const bool asked = c.kind == Kind::tool || c.kind == Kind::joiner;
    if (asked && error.code == 0) return;  // it has its answer
    log_.limited((c.local ? "local " : "tcp ") + std::to_string(error.code), Loop::now(),
                 Level::warning, "connection closed",
                 {{"from", c.local ? "uid " + std::to_string(c.uid) : c.host}, {"WHY", error}});
}

// Ends a connection from this side, with a line for the other.
void Marketd::drop(uint64_t number, const Cause& why) {
    const auto it = connections_.find(number);
    if (it == connections_.end()) return;
    it->second.channel->refuse(why);
    closed(number, Error{EPROTO, why});
}

MarketFace Marketd::face() const {
    MarketFace f{config_.name,
                 {port_},
                 market_.solver_options().algorithm,
                 state_.db().commits(),
                 decisions_.within(500),
                 decisions_.within(990),
                 warnings_};
    f.uncertified = uncertified();
    if (decision_log_) {
        const DecisionFiles& files = decision_log_->files();
        f.decisions = {files.number(), files.head(), files.bytes(), files.oldest(),
                       decision_log_->trouble()};
    }
    if (program_)
        f.solver =
            config_.solver_program.front() + (program_->works() ? "" : " (down; " + f.solver + ")");
    return f;
}

void Marketd::drain() {
    agents_listener_.close();
    tools_listener_.close();
    metrics_page_.reset();
    status_file_.reset();
    usage_timer_.cancel();
    step();
    if (decision_log_) decision_log_->close();
    timer_.cancel();
    rest_.cancel();
    renew_timer_.cancel();
    retry_.cancel();
    walk_timer_.cancel();
    trim_timer_.cancel();
    backup_.reset();
    wait_timer_.cancel();
    relays_.clear();
    program_.reset();
    for (auto& [number, c] : connections_) c.channel->finish();
    connections_.clear();
    agents_.clear();
}

}  // namespace souk
