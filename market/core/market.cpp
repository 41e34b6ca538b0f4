// SPDX-License-Identifier: GPL-2.0-or-later
// Market, first part: life (records, agents, what leaves each step). See market.hpp.
#include "market/core/market.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {
constexpr uint64_t seq_block = 1024;           // orders between two writes of the limit
constexpr Nanos note_pace = Nanos::from_s(1);  // between two notes to one provider
}  // namespace

Market::Market(MarketOptions options)
    : options_(std::move(options)),
      orders_({options_.order_patience, options_.doubt_patience, options_.forgotten_patience,
               options_.backoff_min, options_.backoff_max}) {
    const Status taken = solver_.set_options(options_.solver);
    MUST(taken);  // the caller checks them with Solver::set_options before
}

Result<std::string> Market::set_option(const std::string& what, const std::string& value,
                                       const std::string& why, uint32_t uid, Nanos now) {
    heard(Input::set_option, {}, {}, what + "=" + value);
    if (uid != 0) return fail("only root may set how the market decides");
    TRY(Solver::can_set(what));
    const SolverOption* const option = find_solver_option(what);
    const std::string name = option ? std::string(option->name) : what;
    std::vector<SolverSetting> settings = meta_.settings;
    std::erase_if(settings, [&](const SolverSetting& s) { return s.what == name; });
    const bool back = value == "default";
    if (!back) settings.push_back({name, value, why, uid, now + calendar_});
    TRY_ASSIGN(const SolverOptions options, options_with(settings));
    TRY(solver_.set_options(options));
    meta_.settings = std::move(settings);
    meta_unsaved_ = true;
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
    meta_ = std::move(meta);
    orders_.begin_at(meta_.seq_limit);
    ledger_.set_last(meta_.receipts);
}

void Market::load(JobRecord record) {
    Job job;
    const JobId id = record.report.id;
    job.record = std::move(record);
    job.stored = true;
    job.comment = job.record.comment;
    job.run_base = job.record.billed;
    job.user = &user_of(job.record.report.uid);
    orders_.used(job.record.report.order_seq);
    if (job.record.order) orders_.used(job.record.order->seq);
    jobs_.insert_or_assign(id, std::move(job));
}

void Market::recall(JobRecord record) {
    heard(Input::recall, record.report.id);
    const uint64_t seq = record.finish_seq;
    const JobId id = record.report.id;
    if (seq == 0 || jobs_.contains(id)) return;
    load(std::move(record));
    finished_.emplace(seq, id);
}

void Market::load(NodeRecord record) {
    Node& node = node_of(record.node);
    node.record = std::move(record);
    node.machine = machines_.kind_of(node.record.report.machine);
}

void Market::started(Nanos now) {
    heard(Input::started);
    ledger_.set_day(meta_.day, false);
    open_ledger();
    meta_.seq_limit = std::max(meta_.seq_limit, orders_.next_seq());
    std::vector<Job*> order;
    for (auto& [id, job] : jobs_) order.push_back(&job);
    std::sort(order.begin(), order.end(), [](const Job* a, const Job* b) {
        return std::pair(a->record.report.submitted, a->id()) <
               std::pair(b->record.report.submitted, b->id());
    });
    for (Job* job : order) {
        if (job->phase() == JobPhase::finished) {
            meta_.finish_seq = std::max(meta_.finish_seq, job->record.finish_seq);
            finished_.emplace(job->record.finish_seq, job->id());
            if (meta_.finished_retired) continue;
            meta_.retired += job->record.account.amount;
            unsaved_.insert(*job);  // to be stored among the finished
            continue;
        }
        job->key = {next_key_++};
        job_by_key_.insert(job->key.n, *job);
        job->ordered_at = now;
        set_bid(*job, now);
        claim(*job);
        touch(*job);
        set_alarm(*job);
    }
    if (!std::exchange(meta_.finished_retired, true)) meta_unsaved_ = true;
    for (auto& [name, node] : nodes_) {
        node.lost_at = now;
        touch(node);
    }
    count_days();
    // a market without a past waits for nobody
    if (!jobs_.empty() || !nodes_.empty()) settling_.begin(now + options_.settle);
}

const Job* Market::find(const JobId& id) const {
    const auto it = jobs_.find(id);
    return it == jobs_.end() ? nullptr : &it->second;
}
Job* Market::mutable_job(const JobId& id) { return const_cast<Job*>(find(id)); }

const Node* Market::find_node(const NodeName& name) const {
    const auto it = nodes_.find(name);
    return it == nodes_.end() ? nullptr : &it->second;
}

Node& Market::node_of(const NodeName& name) {
    const auto [it, is_new] = nodes_.try_emplace(name);
    if (is_new) {
        it->second.record.node = name;
        it->second.record.report.node = name;
        it->second.key = {next_key_++};
        node_by_key_.insert(it->second.key.n, it->second);
    }
    return it->second;
}

void Market::touch(Job& job) {
    touched_.insert(job);
    dirty_ = true;
}

void Market::touch(Node& node) {
    touched_nodes_.insert(node);
    noting_nodes_.insert(node);
    dirty_ = true;
}

// -------------------------------------------------------------------------------------------------
// agents

Status Market::agent_connected(const NodeName& name, const std::string& address, Nanos now) {
    heard(Input::agent_connected, {}, name);
    if (!nodes_.contains(name) && nodes_.size() >= options_.nodes_max)
        return fail("the market has " + std::to_string(options_.nodes_max) + " nodes already");
    Node& node = node_of(name);
    if (node.connected) agent_lost(name, now);
    node.connected = true;
    supply_.reset();
    written_off_.erase(name);
    for (const NodeName& lost : written_off_) lost_notes_.push_back({name, NodeLost{lost}});
    if (node.record.address != address) {
        node.record.address = address;
        if (node.record.has_report) unsaved_nodes_.insert(node);
    }
    node.noted = {};
    node.noted_at = {INT64_MIN / 2};
    touch(node);
    for (const auto& [id, job] : node.jobs) touch(*job);
    // Its jobs are believed when it reports them; one that it does not report any more it has lost.
    for (auto it = jobs_.lower_bound({name, 0}); it != jobs_.end() && it->first.home == name;
         ++it) {
        Job& job = it->second;
        if (job.phase() == JobPhase::finished) continue;
        job.reported = false;
        job.doubt_since = now;
        touch(job);
        set_alarm(job);
    }
    return {};
}

void Market::agent_lost(const NodeName& name, Nanos now) {
    heard(Input::agent_lost, {}, name);
    const auto it = nodes_.find(name);
    if (it == nodes_.end() || !it->second.connected) return;
    Node& node = it->second;
    node.connected = false;
    supply_.reset();
    node.lost_at = now;
    touch(node);
    for (const auto& [id, job] : node.jobs) {
        touch(*job);
        set_alarm(*job);
    }
    for (auto job = jobs_.lower_bound({name, 0}); job != jobs_.end() && job->first.home == name;
         ++job) {
        if (job->second.phase() == JobPhase::finished) continue;
        job->second.reported = false;
        job->second.doubt_since = Nanos::never();
        touch(job->second);
        set_alarm(job->second);
    }
}

Status Market::report(const NodeName& name, const ToMarket& message, Nanos now) {
    if (tracer_.on()) tell_report(name, message);
    const auto it = nodes_.find(name);
    if (it == nodes_.end() || !it->second.connected)
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
    // What changes by the second is shown, and decides nothing unless it changes what fits.
    ProviderReport comparable = old;
    comparable.free_mb = r.free_mb;
    comparable.load_permille = r.load_permille;
    comparable.wait_permille = r.wait_permille;
    const bool terms_changed = first || !(comparable == r);
    // What is free beside its jobs; by 64 MB, so that a breath of the owner's programs decides
    // nothing.
    const int64_t beside = r.free_mb + node.used_mb;
    node.room_mb = r.free_mb <= 0 || beside >= r.memory_mb ? r.memory_mb : beside / 64 * 64;
    if (terms_changed) {
        unsaved_nodes_.insert(node);
        supply_.reset();
    }
    const int kind = machines_.kind_of(r.machine);
    if (!machines_.take_the_same(std::exchange(node.machine, kind), kind)) {
        for (auto& [id, job] : jobs_)
            if (job.phase() != JobPhase::finished && !job.record.report.where.empty()) touch(job);
    }
    const auto known = solver_.provider(node.key);
    if (terms_changed || !known || known->memory_mb != memory_of(node)) {
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
    if (settling_.ends(now, nodes_, away, jobs_, unreported)) dirty_ = true;
}

// ------------------------------------------------------------------------------------------- what
// leaves a step

Nanos Market::next_call() const {
    if (dirty_ || outside_.is_adopted()) return {0};
    Nanos next = settling() ? settling_.end() : solver_.next_wake();
    next = std::min({next, alarms_.next(), days_.next(), comment_rounds_.next_call(),
                     price_rounds_.next_call()});
    if (!noting_nodes_.empty()) return {0};
    if (!noted_later_.empty()) next = std::min(next, noted_later_.begin()->first);
    if (!nodes_.empty()) next = std::min(next, prices_seen_.next());
    if (!limited_.empty())
        next = std::min({next, admit_at_, Nanos{(meta_.day + 1) * day_ns} - calendar_});
    return next;
}

void Market::flush(Nanos now, Outputs& out) {
    for (Job* const one : unsaved_.take()) {
        Job& job = *one;
        if (tracer_.on()) tell_state(job);
        job.record.comment = job.comment;
        const JobRecord& r = job.record;
        const bool of_interest = job.stored || r.report.phase != JobPhase::waiting ||
                                 r.account.amount.micro > 0 || r.account.rest > 0 ||
                                 r.hold != Hold::none || r.cancel || r.order;
        if (!of_interest) continue;
        job.stored = true;
        out.store.push_back(r);
    }
    for (const Node* const node : unsaved_nodes_.take()) out.store.push_back(node->record);
    for (const uint32_t uid : std::exchange(unsaved_users_, {})) {
        if (limited_.contains(uid))
            out.store.push_back(users_.at(uid).record);
        else
            out.store.push_back(EraseUser{uid});
    }
    for (StoreOp& op : prices_seen_.take_changed()) out.store.push_back(std::move(op));
    for (Receipt& receipt : ledger_.take_posted()) out.store.push_back(std::move(receipt));
    for (AccountRecord& account : ledger_.take_changed()) out.store.push_back(std::move(account));
    if (std::exchange(meta_.receipts, ledger_.last()) != ledger_.last()) {
        meta_unsaved_ = true;
        if (log_) meta_.decisions = log_->number();
    }
    if (std::exchange(meta_unsaved_, false)) {
        while (meta_.seq_limit < orders_.next_seq()) meta_.seq_limit += seq_block;
        out.store.push_back(meta_);
    }
    send_notes(now, out);
    forget_finished();
}

// What was stored and told.
void Market::forget_finished() {
    while (finished_.size() > options_.finished_recent) {
        const auto it = jobs_.find(finished_.begin()->second);
        if (it->second.in_solver) solver_.remove_job(it->second.key);
        job_by_key_.erase(it->second.key.n);
        touched_.erase(it->second);
        pending_.erase(it->second);
        jobs_.erase(it);
        finished_.erase(finished_.begin());
    }
}

void Market::send_notes(Nanos now, Outputs& out) {
    for (Job* const one : noted_.take()) {
        Job& job = *one;
        const JobId& id = job.id();
        const Node* home = home_of(job);
        if (!home || !home->connected) continue;
        const bool settled = job.phase() == JobPhase::finished;
        std::string text = settled ? "" : comment(job);
        if (!job.note_due && !settled && text == job.noted_comment &&
            job.record.price == job.noted_price)
            continue;
        job.note_due = false;
        job.noted_comment = text;
        job.noted_price = job.record.price;
        JobNote note{id, job.record.price, cost(job, now), std::move(text), settled};
        if (const auto limit = job.user->record.limits.spend_per_day;
            limit && job.noted_day.micro >= 0) {
            note.day_limit = *limit;
            note.day_left = job.user->day_left();
            note.day_cost = job.noted_day;
        }
        out.send.push_back({id.home, std::move(note)});
    }
    for (const Node* const node : noting_nodes_.take())
        noted_later_.insert(
            {node->connected ? std::max(now, node->noted_at + note_pace) : now, node->id()});
    for (; !noted_later_.empty() && noted_later_.begin()->first <= now;
         noted_later_.erase(noted_later_.begin())) {
        Node& node = nodes_.at(noted_later_.begin()->second);
        if (!node.connected || !node.record.has_report) continue;
        const ProviderNote note = prices(node);
        const auto same = [](const ProviderNote& a, const ProviderNote& b) {
            return a.current_price == b.current_price && a.next_price == b.next_price &&
                   a.earned == b.earned && a.guests == b.guests;
        };
        if (!same(note, node.noted)) {
            node.noted = note;
            node.noted_at = now;
            out.send.push_back({node.record.node, note});
        }
    }
    for (Send& lost : std::exchange(lost_notes_, {})) out.send.push_back(std::move(lost));
}

}  // namespace souk::market
