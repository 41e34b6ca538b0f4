// SPDX-License-Identifier: GPL-2.0-or-later
// Market, first part: life (records, agents, what leaves each step). See market.hpp.
#include "market/core/market.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/claims.hpp"

namespace souk::market {

Market::Market(MarketOptions options)
    : options_(std::move(options)),
      book_({options_.jobs_max, options_.nodes_max, options_.finished_recent,
             options_.jobs_home_max, options_.jobs_user_max}),
      places_(book_),
      orders_({options_.order_patience, options_.doubt_patience, options_.forgotten_patience,
               options_.backoff_min, options_.backoff_max}) {
    const Status taken = solver_.set_options(options_.solver);
    MUST(taken);  // the caller checks them with Solver::set_options before
}

Result<std::string> Market::set_option(const std::string& what, const std::string& value,
                                       const std::string& why, uint32_t uid, Nanos now) {
    heard(Input::set_option, {}, {}, what + "=" + value);
    if (uid != 0) return fail(CauseCode::not_allowed, "only root may set how the market decides");
    TRY(Solver::can_set(what));
    const SolverOption* const option = find_solver_option(what);
    const std::string name = option ? std::string(option->name) : what;
    std::vector<SolverSetting> settings = book_.meta().settings;
    std::erase_if(settings, [&](const SolverSetting& s) { return s.what == name; });
    const bool back = value == "default";
    if (!back) settings.push_back({name, value, why, uid, now + calendar_});
    TRY_ASSIGN(const SolverOptions options, options_with(settings));
    const bool moves_cost = solver_.options().horizon.ns > 0;
    const bool may_stand_less = options.stand_max < solver_.options().stand_max;
    const Nanos ageing = solver_.ageing();
    TRY(solver_.set_options(options));
    if (solver_.ageing() != ageing) weigh_all();
    if (may_stand_less) bound_standing();
    if (moves_cost != (options.horizon.ns > 0))  // what files take is told with a horizon alone
        for (auto& [id, job] : book_.jobs())
            if (job.record.report.files->served && job.phase() != JobPhase::finished) touch(job);
    for (const auto& [gang, ids] : gangs_)  // another algorithm may place them
        for (const JobId& id : ids)
            if (Job* const job = mutable_job(id); job && !job->in_solver) touch(*job);
    book_.meta().settings = std::move(settings);
    book_.save_meta();
    dirty_ = true;
    return name + " is " + Solver::get(options, name) + " now" + (back ? ", as configured" : "");
}

// What is configured, and over it what was set.
Result<SolverOptions> Market::options_with(const std::vector<SolverSetting>& settings) const {
    SolverOptions options = options_.solver;
    for (const SolverSetting& s : settings) TRY(Solver::set(options, s.what, s.value));
    return options;
}

void Market::load(MetaRecord meta) {
    // What an older program does not know, or takes no more, is left out.
    std::erase_if(meta.settings, [&](const SolverSetting& s) {
        return !options_with({s}) || !Solver().set_options(*options_with({s}));
    });
    if (const auto options = options_with(meta.settings);
        !options || !solver_.set_options(*options))
        meta.settings.clear();
    book_.load(std::move(meta));
    orders_.begin_at(book_.meta().seq_limit);
    ledger_.set_last(book_.meta().receipts);
}

void Market::load(JobRecord record) {
    const Job& job = book_.load(std::move(record));
    orders_.used(job.record.report.order_seq);
    if (job.record.order) orders_.used(job.record.order->seq);
}

void Market::recall(JobRecord record) {
    heard(Input::recall, record.report.id);
    const Job* const job = book_.recall(std::move(record));
    if (job) orders_.used(job->record.report.order_seq);
}

void Market::load(NodeRecord record) {
    Node& node = book_.load(std::move(record));
    (void)places_.take_machine(node);
}

void Market::started(Nanos now) {
    heard(Input::started);
    ledger_.set_day(book_.meta().day, false);
    open_ledger();
    book_.meta().seq_limit = std::max(book_.meta().seq_limit, orders_.next_seq());
    for (Job* const job : book_.begin()) {
        book_.number(*job);
        job->ordered_at = now;
        set_bid(*job, now);
        resume_wait(*job, now);
        resume_backing(*job, now);
        claim(*job);
        touch(*job);
        set_alarm(*job);
    }
    for (auto& [name, node] : book_.nodes()) {
        node.lost_at = now;
        touch(node);
    }
    count_days();
    for (auto& [uid, user] : book_.users())
        if (options_.metered) open_account(user);
    // a market without a past waits for nobody
    if (!book_.jobs().empty() || !book_.nodes().empty()) settling_.begin(now + options_.settle);
}

void Market::touch(Job& job) {
    touched_.insert(job);
    dirty_ = true;
}

// One that was forgotten has earned what its account says.
Node& Market::node_of(const NodeName& name) {
    if (const auto it = book_.nodes().find(name); it != book_.nodes().end()) return it->second;
    Node& node = book_.node(name);
    node.record.earned = ledger_.by_use(Holder::provider(name));
    return node;
}

void Market::touch(Node& node) {
    touched_nodes_.insert(node);
    notes_.of(node);
    dirty_ = true;
}

// -------------------------------------------------------------------------------------------------
// agents

Status Market::agent_connected(const NodeName& name, const std::string& address, Nanos now) {
    heard(Input::agent_connected, {}, name);
    TRY(book_.admits_node(name));
    Node& node = node_of(name);
    if (node.connected) agent_lost(name, now);
    node.connected = true;
    node.said.clear();  // it says it anew
    places_.changed();
    places_.came_back(name);
    for (const NodeName& lost : places_.written_off()) notes_.lost(name, lost);
    if (node.record.address != address) {
        node.record.address = address;
        if (node.record.has_report) book_.save(node);
    }
    node.noted = {};
    node.noted_at = {INT64_MIN / 2};
    touch(node);
    std::vector<JobId> awaited;
    for (auto it = awaited_.lower_bound({name, {}}); it != awaited_.end() && it->first == name;
         ++it)
        awaited.push_back(it->second);
    for (const JobId& id : awaited) back_by(id, now);
    for (const auto& [id, job] : node.jobs) {
        touch(*job);
        wants_proof_soon(*job, now);
    }
    // Its jobs are believed when it reports them; one that it does not report any more it has lost.
    for (auto it = book_.jobs().lower_bound({name, 0});
         it != book_.jobs().end() && it->first.home == name; ++it) {
        Job& job = it->second;
        if (job.phase() == JobPhase::finished) continue;
        job.reported = false;
        job.doubt_since = now;
        root(job);
        touch(job);
        set_alarm(job);
    }
    return {};
}

void Market::agent_lost(const NodeName& name, Nanos now) {
    heard(Input::agent_lost, {}, name);
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end() || !it->second.connected) return;
    Node& node = it->second;
    node.connected = false;
    refusals_.gone(name);
    places_.changed();
    node.lost_at = now;
    touch(node);
    for (const auto& [id, job] : node.jobs) {
        touch(*job);
        set_alarm(*job);
    }
    for (auto job = book_.jobs().lower_bound({name, 0});
         job != book_.jobs().end() && job->first.home == name; ++job) {
        if (job->second.phase() == JobPhase::finished) continue;
        job->second.reported = false;
        job->second.doubt_since = Nanos::never();
        root(job->second);
        touch(job->second);
        set_alarm(job->second);
    }
}

Status Market::report(const NodeName& name, const ToMarket& message, Nanos now) {
    if (tracer_.on()) tell_report(name, message);
    const auto it = book_.nodes().find(name);
    if (it == book_.nodes().end() || !it->second.connected)
        return fail("node " + name + " is not connected");
    begin_day(now);
    if (const auto* job = std::get_if<JobReport>(&message)) return job_report(name, *job, now);
    if (const auto* failed = std::get_if<OrderFailed>(&message))
        return order_failed(name, *failed, now);
    const auto& r = std::get<ProviderReport>(message);
    if (r.node != name) return fail("node " + name + " reports as provider " + r.node);
    Node& node = it->second;
    const ProviderReport old = std::exchange(node.record.report, r);
    const bool first = !std::exchange(node.record.has_report, true);
    node.leaving_of = r.on_market ? 0 : std::max(node.leaving_of, guests_left(node));
    // What changes by the second is shown, and decides nothing unless it changes what fits.
    ProviderReport comparable = old;
    comparable.free_mb = r.free_mb;
    comparable.load_permille = r.load_permille;
    comparable.wait_permille = r.wait_permille;
    comparable.has_memory_pressure = r.has_memory_pressure;
    comparable.memory_pressure_permille = r.memory_pressure_permille;
    const bool terms_changed = first || !(comparable == r);
    // What is free beside its jobs; by 64 MB, so that a breath of the owner's programs decides
    // nothing.
    const int64_t beside = r.free_mb + node.used_mb;
    node.room_mb = r.free_mb <= 0 || beside >= r.memory_mb ? r.memory_mb : beside / 64 * 64;
    if (terms_changed) {
        book_.save(node);
        places_.changed();
    }
    if (places_.take_machine(node)) {
        for (auto& [id, job] : book_.jobs())
            if (job.phase() != JobPhase::finished && !job.record.report.where.empty()) touch(job);
    }
    const auto known = solver_.provider(node.key);
    if (terms_changed || !known || known->memory_mb != Places::memory_of(node)) {
        touch(node);
        for (const auto& [id, job] : node.jobs) touch(*job);
    }
    return {};
}

void Market::end_settling(Nanos now) {
    const auto away = [](const Node& node) {
        return !node.connected &&
               (!node.jobs.empty() || (node.record.has_report && node.record.report.on_market));
    };
    const auto unreported = [](const Job& job) {
        return job.phase() != JobPhase::finished && !job.reported;
    };
    if (settling_.ends(now, book_.nodes(), away, book_.jobs(), unreported)) dirty_ = true;
}

// ------------------------------------------------------------------------------------------- what
// leaves a step

Nanos Market::next_call() const {
    if (dirty_ || outside_.is_adopted()) return {0};
    Nanos next = settling() ? settling_.end() : solver_.next_wake();
    next = std::min({next, alarms_.next(), days_.next(), comment_rounds_.next_call(),
                     price_rounds_.next_call(), notes_.next(), refusals_.next()});
    if (!book_.nodes().empty()) next = std::min(next, prices_seen_.next());
    if (!admission_.limited().empty())
        next =
            std::min({next, admission_.next(), Nanos{(book_.meta().day + 1) * day_ns} - calendar_});
    return next;
}

void Market::flush(Nanos now, Outputs& out) {
    for (const Job* const job : book_.store(out))
        if (tracer_.on()) tell_state(*job);
    for (StoreOp& op : prices_seen_.take_changed()) out.store.push_back(std::move(op));
    for (Receipt& receipt : ledger_.take_posted()) out.store.push_back(std::move(receipt));
    for (AccountRecord& account : ledger_.take_changed()) out.store.push_back(std::move(account));
    if (std::exchange(book_.meta().receipts, ledger_.last()) != ledger_.last()) {
        book_.save_meta();
        if (log_) book_.meta().decisions = log_->number();
    }
    book_.store_meta(orders_.next_seq(), out);
    notes_.send(Texts(*this), book_.nodes(), now, out);
    forget_finished();
}

// What was stored and told.
void Market::forget_finished() {
    while (Job* const job = book_.one_too_many()) {
        if (job->in_solver) solver_.remove_job(job->key);
        touched_.erase(*job);
        pending_.erase(*job);
        book_.forget(*job);
    }
}

}  // namespace souk::market
