// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/marketd.hpp"

#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/zone.hpp"
#include "market/daemon/decision_reply.hpp"
#include "market/daemon/ledger_replies.hpp"
#include "market/daemon/quote_replies.hpp"
#include "market/wire/site_codec.hpp"

namespace souk {

namespace {

// Logs a line for each of the first orders of a step. With those of the home and the nodes they are
// what `journalctl JOB=` has of a job, and ORDER is the same in all lines of one order.
void log_orders(Log& log, const std::vector<market::Send>& held) {
    constexpr size_t lines_max = 64;
    size_t lines = 0;
    for (const market::Send& s : held) {
        const auto* order = std::get_if<Order>(&s.message);
        if (!order) continue;
        if (++lines > lines_max) continue;
        log.info("order", {{"JOB", order->id.text()},
                           {"ORDER", order->seq},
                           {"STEP", std::string("order.") + to_string(order->kind)},
                           {"NODE", order->node},
                           {"WHY", order->reason}});
    }
    if (lines > lines_max) log.info("orders are not told one by one", {{"count", lines}});
}

}  // namespace

Marketd::Marketd(Loop& loop, Log& log, const MarketConfig& config, StateDb db)
    : loop_(loop),
      log_(log),
      config_(config),
      warnings_(log),
      replies_(*this),
      market_(config.market),
      records_(loop, log, config, std::move(db), market_, warnings_, *this),
      trust_(loop, log, config, records_.state(), market_, connections_, replies_, *this),
      connections_(loop, log, config, *this),
      ledger_(loop, log, market_, records_, connections_, replies_, warnings_, *this),
      reports_(loop, records_, connections_),
      waits_(loop, market_, connections_),
      questions_(loop, market_, records_, connections_),
      sites_(loop, log, config, records_.state(), connections_, replies_, *this),
      accounts_(loop, log, market_, records_, sites_, warnings_, *this),
      news_(loop, config, market_, sites_),
      programs_(loop, log, config),
      submits_(loop, market_, programs_.submit, *this),
      arrivals_(sites_, programs_.arrival, programs_.users),
      offers_(loop, market_, sites_, connections_, records_.state(), arrivals_, programs_, *this),
      loans_(log, market_, records_, sites_, connections_, arrivals_, *this),
      web_(log, config, trust_, replies_),
      figures_(config, market_, records_, connections_, trust_, decisions_, warnings_, programs_,
               decision_log_, program_) {}

Result<std::unique_ptr<Marketd>> Marketd::open(Loop& loop, Log& log, const MarketConfig& config) {
    TRY(make_directory(config.state));
    TRY_ASSIGN(StateDb db,
               StateDb::open(config.state, market_schema_version, market_schema_oldest));
    std::unique_ptr<Marketd> daemon(new Marketd(loop, log, config, std::move(db)));
    TRY(daemon->web_.check_user());
    TRY(daemon->programs_.check());
    TRY(daemon->load());
    TRY(daemon->trust_.open());
    TRY(daemon->accounts_.open());
    TRY(daemon->sites_.open(daemon->trust_.tls()));
    daemon->accounts_.opened();
    daemon->records_.say_aside();
    TRY(daemon->connections_.listen(daemon->trust_.tls()));
    if (!daemon->trust_.tls())
        log.warning("insecure: whoever reaches the port may act as any node and as an operator");
    if (!config.solver_program.empty()) {
        daemon->program_ = std::make_unique<SolverProgram>(
            loop, log, config.solver_program, config.solver_places, config.solver_patience,
            [d = daemon.get()](auto allocation) { d->solver_answered(std::move(allocation)); });
        daemon->market_.set_external(true);
    }
    if (!config.metrics.empty()) {
        daemon->metrics_page_ = std::make_unique<MetricsPage>(
            loop, [d = daemon.get()] { return d->figures_.metrics(); });
        if (const Status listens = daemon->metrics_page_->listen(config.metrics); !listens)
            return wrap("metrics: " + config.metrics, listens.error());
    }
    if (!config.status_file.empty())
        daemon->status_file_ = std::make_unique<StatusFile>(
            loop, log, "marketd", config.status_file, config.status_every,
            [d = daemon.get()] { return d->figures_.status_lines(); });
    daemon->records_.trim_finished();
    daemon->sites_.call_all();
    daemon->offers_.start();
    daemon->wake();
    return daemon;
}

void Marketd::set_clock() {
    const int64_t unix_s = unix_now().ns / 1'000'000'000;
    market_.set_calendar(MarketRecords::calendar(), ahead_of_utc("", unix_s));
}

Status Marketd::load() {
    TRY_ASSIGN(const MarketRecords::Read read, records_.load());
    set_clock();
    open_decision_log();
    market_.tell_to(trace_.listener());
    market_.started(Loop::now());
    const StateDb& db = records_.state().db();
    if (db.log_missing()) warnings_.add(StateDb::log_missing_text(db.path()));
    for (const market::SolverSetting& set : market_.settings())
        log_.info("set by hand, before what is configured",
                  {{"what", set.what},
                   {"value", set.value},
                   {"WHY", set.why},
                   {"uid", static_cast<int64_t>(set.uid)}});
    if (read.jobs + read.nodes > 0)
        log_.info("records read", {{"jobs", read.jobs}, {"nodes", read.nodes}});
    return {};
}

Status Marketd::frame(uint64_t number, Connection& c, const wire::Frame& f) {
    if (input_at_ == Nanos::never()) input_at_ = Loop::now();
    switch (c.kind) {
        case Connection::Kind::greeting: return greet(number, c, f);
        case Connection::Kind::agent: return from_agent(number, c, f);
        case Connection::Kind::joiner: return trust_.certify(number, c, f);
        case Connection::Kind::called: return sites_.welcomed(number, c, f);
        case Connection::Kind::site: return from_site(number, c, f);
        case Connection::Kind::tool: break;
    }
    return question(number, c, f);
}

void Marketd::agent_ended(const Connection& c, const Error& error) {
    questions_.lost(c.node);
    log_.info("agent lost", {{"NODE", c.node}, {"WHY", error}});
    market_.agent_lost(c.node, Loop::now());
    wake();
}

Status Marketd::greet(uint64_t number, Connection& c, const wire::Frame& f) {
    if (f.type != wire::frame::hello) return fail("the connection does not begin with a hello");
    TRY_ASSIGN(const wire::Hello hello, wire::unpack<wire::Hello>(f.body));
    TRY(wire::check_version(hello.version, hello.program));
    if (c.local) {
        if (hello.role != wire::Role::tool)
            return fail("this socket is for marketctl; agents connect to " + config_.listen);
        c.kind = Connection::Kind::tool;
    } else if (hello.role == wire::Role::joiner) {
        TRY(trust_.greet_joiner(c, hello));
    } else if (hello.role == wire::Role::site) {
        TRY(sites_.greet(number, c, hello));
    } else if (hello.role == wire::Role::tool && trust_.tls()) {
        TRY(trust_.greet_operator(c));
    } else {
        if (hello.role != wire::Role::agent)
            return fail("this is the market; it talks to agents here");
        TRY(greet_agent(number, c, hello));
    }
    if (c.kind != Connection::Kind::joiner) connections_.is_known(number);
    c.channel->allow(c.kind == Connection::Kind::agent    ? wire::agent_to_market
                     : c.kind == Connection::Kind::joiner ? wire::joiner_to_market
                     : c.kind == Connection::Kind::site   ? wire::site_to_market
                                                          : wire::operator_to_market);
    connections_.send(
        number,
        wire::Welcome{
            wire::protocol_version, c.kind == Connection::Kind::site ? sites_.name() : config_.name,
            c.kind == Connection::Kind::agent ? reachable(hello.address, c.host) : "", false, true,
            unix_now(), version(),
            c.kind == Connection::Kind::site ? knows_loans | knows_accounts | knows_news : 0});
    if (c.kind != Connection::Kind::agent) return {};
    trust_.tell_lists(number);
    sites_.tell_agent(number);
    return {};
}

Status Marketd::greet_agent(uint64_t number, Connection& c, const wire::Hello& hello) {
    if (!valid_node_name(hello.node) || hello.address.empty())
        return fail("an agent's hello needs its node name and its address");
    TRY(trust_.is_certified(c, hello.node));
    if (const auto old = connections_.agents().find(hello.node);
        old != connections_.agents().end()) {
        const Connection& first = connections_.at(old->second);
        const std::string& host = first.host;
        const trust::Peer *const before = first.channel->peer(), *const peer = c.channel->peer();
        if (before && (!peer || before->key != peer->key))
            return fail("node " + hello.node + " is connected already, with another key");
        if (!before && !peer && host != c.host)
            return fail("node " + hello.node + " is connected already, from " + host +
                        "; give this one another name");
        connections_.drop(old->second, "replaced by a newer connection");
    }
    trust_.met(c, hello.node);
    const std::string address = reachable(hello.address, c.host);
    TRY(market_.agent_connected(hello.node, address, Loop::now()));
    c.kind = Connection::Kind::agent;
    c.node = hello.node;
    c.answers = hello.answers;
    c.tickets = hello.tickets;
    c.sites = hello.sites;
    connections_.is_agent(number, c.node);
    log_.info("agent connected", {{"NODE", c.node}, {"address", address}});
    wake();
    return {};
}

Status Marketd::from_agent(uint64_t number, Connection& c, const wire::Frame& f) {
    // The user of a job is told below.
    if (f.type != wire::frame::job_report && !MarketTrust::has_role(c, f.type)) {
        log_.limited("role " + c.node, Loop::now(), Level::warning, "a word was left out",
                     {{"NODE", c.node},
                      {"type", static_cast<int64_t>(f.type)},
                      {"WHY", "its certificate is of a " +
                                  trust::text_of(c.channel->peer()->subject.roles) + " alone"}});
        return {};
    }
    if (f.type == wire::frame::ctl_request) return question(number, c, f);
    if (f.type == wire::frame::ctl_reply) return questions_.answered(c.node, f);
    if (f.type == wire::frame::renew) return trust_.certify(number, c, f);
    if (f.type == wire::frame::use_report) {
        TRY_ASSIGN(const UseReport use, wire::unpack<UseReport>(f.body));
        market_.use_report(c.node, use, Loop::now());
        tell_differences();
        wake();
        return {};
    }
    TRY_ASSIGN(ToMarket message, wire::unpack_to_market(f.type, f.body));
    if (auto* const job = std::get_if<JobReport>(&message)) {
        if (!trust_.may_vouch(number, c, *job)) return {};
        // A job whose record is set aside would be a new job, and pay once more.
        if (records_.state().is_aside(kind_job, job->id.text())) return {};
        TRY(records_.recall(job->id));
    }
    TRY(market_.report(c.node, message, Loop::now()));
    if (const auto* job = std::get_if<JobReport>(&message)) offers_.job_told(job->id);
    tell_differences();
    wake();
    return {};
}

// Logs where a home and a place did not agree on how long a job has run
// (market/core/use_check.hpp).
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
}

Status Marketd::question(uint64_t number, const Connection& c, const wire::Frame& f) {
    if (f.type != wire::frame::ctl_request)
        return fail("a frame of type " + std::to_string(static_cast<unsigned>(f.type)) +
                    " is not for the market");
    TRY_ASSIGN(wire::CtlRequest request, wire::unpack<wire::CtlRequest>(f.body));
    request.uid = trust_.speaks_for(c, request);
    if (web_.answer(number, c, request)) return {};
    trust_.audit(c, request, false);
    if (request.verb == "peer-settle")
        return replies_.add(number, accounts_.settle(request)), Status();
    if (sites_.takes(number, request)) return {};
    if (request.verb == "site-entries")
        return replies_.add(number, accounts_.entries(request, {})), Status();
    if (Enrolment::takes(request.verb)) return trust_.question(number, c, request), Status();
    if (request.verb == "ledger-verify") return ledger_.verify(number, request), Status();
    if (request.verb == "backup") return ledger_.begin_backup(number, c, request), Status();
    if (request.verb == "await" || request.verb == "story" || request.verb == "load" ||
        request.verb == "output") {
        const Status taken = request.verb == "await" ? waits_.await(number, request)
                                                     : questions_.ask(number, request);
        if (!taken) replies_.refuse(number, request, as_asked(taken.error()));
        wake();
        return {};
    }
    if (request.verb == "report") {
        if (const Status taken = reports_.ask(number, c, request); !taken)
            replies_.refuse(number, request, as_asked(taken.error()));
        return {};
    }
    if (request.verb == "quote") {
        if (const Status taken = quotes_.take({number, c.node, request}); !taken)
            replies_.refuse(number, request, as_asked(taken.error()));
        wake();
        return {};
    }
    return answer_at_once(number, c, request);
}

// Another site asks as nobody, and its answers are claims.
Status Marketd::from_site(uint64_t number, const Connection& c, const wire::Frame& f) {
    if (f.type == wire::frame::error_text) {
        TRY_ASSIGN(const auto text, wire::unpack<wire::ErrorText>(f.body));
        return fail(text.text.code, "it says: " + text.text);
    }
    if (f.type == wire::frame::ctl_reply) return sites_.answered(c, f);
    if (f.type == wire::frame::site_terms) {
        Status told = sites_.told_terms(c, f);
        offers_.peer_came();
        return told;
    }
    if (f.type == wire::frame::site_ask) return offers_.asked(number, c, f);
    if (f.type == wire::frame::site_offer) return offers_.answered(c, f);
    if (LoanDesk::takes(f.type)) return loans_.heard(number, c, f);
    if (f.type == wire::frame::site_account) return accounts_.heard(c, f);
    if (f.type == wire::frame::site_words) return news_.heard(c, f);
    TRY_ASSIGN(wire::CtlRequest request, wire::unpack<wire::CtlRequest>(f.body));
    request.uid = MarketTrust::nobody;
    const size_t listed = market_.jobs().size() + market_.nodes().size();
    if (!sites_.admits(number, c, request, listed)) return {};
    if (request.verb == "site-entries")
        return replies_.add(number, accounts_.entries(request, c.node)), Status();
    return answer_at_once(number, c, request);
}

// These are answered by what is known now; the answer leaves when that is durable.
Status Marketd::answer_at_once(uint64_t number, const Connection& c,
                               const wire::CtlRequest& request) {
    if (request.verb == "offers")
        return replies_.add(number, wire::reply_to(request.request, offers_.list(request))),
               Status();
    if (request.verb == "site-news") {
        wire::CtlReply reply{request.request, true, {}, {}, {}};
        reply.json = news_.list(request.after, reply.next);
        return replies_.add(number, std::move(reply)), Status();
    }
    if (request.verb == "ledger-seen")
        return replies_.add(number, ledger_.compare(c, request)), Status();
    if (request.verb == "promise-missed")
        return replies_.add(number, ledger_.promise_missed(c, request)), Status();
    if (request.verb == "decisions")
        return replies_.add(number, decisions_reply(market_, decision_log_.get(), request)),
               Status();
    // Answers within one iteration are bounded as is what waits in the connection's queue.
    const size_t bound = connections_.queue_bytes_max(c);
    if (replies_.bytes(number) > bound)
        return fail("the send queue of " + std::to_string(bound) + " bytes is full");
    if (request.verb == "plan")
        return replies_.add(number, plans_.answer(market_, request, c.node, Loop::now())), Status();
    if (request.verb == "transfer" && request.uid != market::root_uid &&
        !transfers_.take(c.node, request.uid, Loop::now()))
        return replies_.refuse(number, request,
                               Cause(CauseCode::too_many,
                                     "too many transfers of you or of your node: one more each "
                                     "10 s")),
               Status();
    wire::CtlReply reply = answer(market_, records_.book(), records_.finished(), request,
                                  figures_.face(), Loop::now());
    if (request.verb == "set" && reply.ok)
        log_.info("the way of deciding was changed", {{"what", request.args[0]},
                                                      {"value", request.args[1]},
                                                      {"WHY", request.args[2]},
                                                      {"uid", static_cast<int64_t>(request.uid)}});
    replies_.add(number, std::move(reply));
    return {};
}

void Marketd::drain() {
    connections_.stop_listening();
    metrics_page_.reset();
    status_file_.reset();
    step();
    if (decision_log_) decision_log_->close();
    timer_.cancel();
    rest_.cancel();
    retry_.cancel();
    records_.close();
    trust_.close();
    ledger_.close();
    reports_.close();
    waits_.close();
    questions_.close();
    submits_.close();
    programs_.close();
    offers_.close();
    accounts_.close();
    news_.close();
    sites_.close();
    program_.reset();
    connections_.finish();
}

// A market whose decisions cannot be logged goes on.
void Marketd::open_decision_log() {
    if (config_.decisions_mb == 0) return;
    auto opened = DecisionShell::open(loop_, log_, config_.state + "/decisions",
                                      {config_.decisions_mb << 20, config_.decisions_age},
                                      market_.decisions());
    if (!opened) return warnings_.add("there is no decision log: " + opened.error().message);
    decision_log_ = std::move(*opened);
    market_.log_to(decision_log_->text());
}

// After a long step the market rests as long as it took: what comes in meanwhile is decided at
// once, so that a market with more events than it could decide one by one is late by two steps at
// most, and has half of its time for its connections.
void Marketd::wake() {
    if (std::exchange(step_due_, true)) return;
    const auto take = [this] {
        step_due_ = false;
        step();
    };
    if (Loop::now() < rests_until_)
        rest_ = loop_.at(rests_until_, take);
    else
        loop_.defer(take);
}

void Marketd::step() {
    constexpr Nanos long_step = Nanos::from_ms(2), rest_max = Nanos::from_ms(25);
    const Nanos began = Loop::now();
    market::Outputs out;
    set_clock();
    market_.solve(Loop::now(), out);
    if (decision_log_) decision_log_->stepped(market_, unix_now());
    records_.store(out.store);
    const bool more_quotes = quotes_.answer([this](const auto& asked) { quote(asked); }, Loop::now);
    // An answer may give a job away: that is told when it is stored, in the next step.
    submits_.look();
    loans_.tell();
    accounts_.tell();
    const bool more_offers = offers_.answer();
    if (records_.finished().count() > config_.finished_max) records_.trim_finished();
    for (market::Send& s : out.send) held_.push_back(std::move(s));
    if (!std::exchange(release_waits_, true))
        records_.state().journal().then([this] { release(); });
    if (out.ask_solver) program_->ask(market_.problem());
    flush();
    const Nanos next = market_.next_call();
    if (next == Nanos::never())
        timer_.cancel();
    else
        timer_ = loop_.at(next, [this] { wake(); });
    const Nanos took = Loop::now() - began;
    const Nanos rest = std::min(Nanos{took.ns / 2}, rest_max);
    rests_until_ = took < long_step ? Nanos{} : Loop::now() + rest;
    if (more_quotes || more_offers) wake();
}

void Marketd::quote(const QuoteDesk::Asked& asked) {
    if (!connections_.has(asked.connection)) return;
    replies_.put(asked.connection,
                 quote_reply(market_, asked.from, program_ != nullptr, asked.request, Loop::now()));
}

void Marketd::flush() {
    Journal& journal = records_.state().journal();
    const bool held = journal.holds();
    const Journal::Flushed flushed = journal.flush(Loop::now());
    if (!flushed.committed)
        log_.limited("disk", Loop::now(), Level::error,
                     "nothing is decided until the records can be written",
                     {{"WHY", flushed.committed.error()}});
    else if (held)
        log_.notice("the records can be written again");
    retry_.cancel();
    if (const Nanos next = journal.next(); next != Nanos::never())
        retry_ = loop_.at(next, [this] {
            records_.state().journal().tick(Loop::now());
            flush();
        });
    for (const auto& call : flushed.calls) call();
}

// Lets go what is decided and durable.
void Marketd::release() {
    release_waits_ = false;
    if (decision_log_) decision_log_->write();
    log_orders(log_, held_);
    for (market::Send& s : std::exchange(held_, {})) {
        if (auto* order = std::get_if<Order>(&s.message)) trust_.give_ticket(*order);
        if (!of_site(s.node).site.empty()) {
            loans_.send(s);
            continue;
        }
        const auto agent = connections_.agents().find(s.node);
        if (agent == connections_.agents().end()) continue;
        const uint64_t number = agent->second;
        const Status sent =
            connections_.at(number).channel->send(wire::type_of(s.message), wire::pack(s.message));
        if (!sent)
            connections_.drop(number, sent.error().message);
        else if (std::holds_alternative<Order>(s.message) && input_at_ != Nanos::never())
            decisions_.add(Loop::now() - input_at_);
    }
    input_at_ = Nanos::never();
    for (const Reply& r : replies_.take()) connections_.send(r.connection, r.reply);
    waits_.answer();
}

void Marketd::solver_answered(Result<std::vector<market::Solver::Assignment>> allocation) {
    Status adopted = allocation ? market_.adopt(*allocation, Loop::now())
                                : Status(tl::unexpected(std::move(allocation).error()));
    if (!adopted) {
        log_.limited("solver", Loop::now(), Level::warning,
                     "the solver program is no help; the market decides by itself",
                     {{"WHY", adopted.error()}});
        market_.use_own();
    }
    wake();
}

}  // namespace souk
