// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/book.hpp"

#include "kernel/base/check.hpp"
#include "market/store/records.hpp"

namespace souk::sim {

using namespace market;

Book::Book(uint64_t seed, Bug bug, bool gives_orders)
    : rng_(seed ^ 0x626f6f6b), bug_(bug), gives_orders_(gives_orders) {
    disk_.on_row = [this](const RecordName& name, const std::string& value) {
        became_durable(name, value);
    };
    restart({});
}

void Book::restart(Nanos now) {
    const bool is_first = !market_;
    MarketOptions options;
    // All has to come to rest within the time that a run has.
    if (gives_orders_) options.backoff_max = options.order_patience = Nanos::from_s(60);
    market_ = std::make_unique<Market>(std::move(options));
    market_->tell_to(listener_);
    journal_ = std::make_unique<Journal>(disk_);
    connected_.clear();
    market_->load(meta_);
    for (const auto& [id, r] : jobs_) market_->load(r);
    for (const auto& [name, r] : nodes_) market_->load(r);
    for (const auto& [holder, r] : accounts_) market_->load(r);
    market_->started(now);
    if (!is_first) check();
}

ProviderReport Book::usual_offer(const NodeName& node) {
    ProviderReport p;
    p.node = node;
    p.on_market = true;
    p.reserve = Money::units(1);
    p.cpus = 4;
    p.memory_mb = p.free_mb = 8000;
    return p;
}

void Book::connected(const NodeName& node, ProviderReport offer, Nanos now) {
    MUST(market_->agent_connected(node, node + ":1", now));
    connected_.insert(node);
    MUST(market_->report(node, offer, now));
}

void Book::tell_to(TraceListener* listener) {
    listener_ = listener;
    market_->tell_to(listener);
}

void Book::lost(const NodeName& node, Nanos now) {
    if (connected_.erase(node)) market_->agent_lost(node, now);
}

void Book::hears(JobReport report, Nanos now) {
    if (!connected_.contains(report.id.home)) return;
    if (bug_ == Bug::bill_frozen_time) {
        auto& [since, span] = frozen_.try_emplace(report.id, Nanos::never(), Nanos{}).first->second;
        const bool frozen = report.phase == JobPhase::frozen || report.phase == JobPhase::freezing;
        if (frozen && since == Nanos::never()) since = now;
        if (!frozen && since != Nanos::never()) span += now - std::exchange(since, Nanos::never());
        report.stats.run_time += span;
    }
    if (report.id.seq % 3 == 0 && !gives_orders_) {
        const auto ms = static_cast<uint64_t>(now.ns / 1'000'000);
        report.files.edit().served = true;
        report.files.edit().out_bytes = 7 * ms;
        report.files.edit().in_bytes = 3 * ms;
        report.files.edit().requests = ms;
    }
    if (const auto known = jobs_.find(report.id); known != jobs_.end() && !market_->find(report.id))
        market_->recall(known->second);
    const Status heard = market_->report(report.id.home, report, now);
    // A liar may have said before what does not fit to what its home says.
    if (!heard && failure.empty() && !liars.contains(report.id.home))
        failure = "the market refuses a report: " + heard.error().message;
}

void Book::hears(const NodeName& node, const ToMarket& message, Nanos now) {
    if (!connected_.contains(node)) return;
    const Status heard = market_->report(node, message, now);
    if (!heard && failure.empty()) failure = "the market refuses: " + heard.error().message;
}

void Book::is_told(const NodeName& liar, const ToMarket& message, Nanos now) {
    if (!connected_.contains(liar)) return;
    if (const auto* r = std::get_if<JobReport>(&message))
        if (const auto known = jobs_.find(r->id); known != jobs_.end() && !market_->find(r->id))
            market_->recall(known->second);
    if (market_->report(liar, message, now)) return;
    lost(liar, now);
    connected(liar, usual_offer(liar), now);
}

void Book::is_told(const NodeName& liar, const UseReport& use, Nanos now) {
    if (connected_.contains(liar)) market_->use_report(liar, use, now);
}

void Book::store(const StoreOp& op) {
    const auto put = [this](const char* kind, const std::string& key, std::string record) {
        journal_->put(kind, key, std::move(record), Durable::now);
    };
    if (const auto* job = std::get_if<JobRecord>(&op))
        put("job", job->report.id.text(), wire::pack(*job));
    if (const auto* node = std::get_if<NodeRecord>(&op)) put("node", node->node, wire::pack(*node));
    if (const auto* account = std::get_if<AccountRecord>(&op))
        put("account", account->holder.text(), wire::pack(*account));
    if (const auto* meta = std::get_if<MetaRecord>(&op)) put("meta", "market", wire::pack(*meta));
    if (const auto* receipt = std::get_if<Receipt>(&op)) {
        if (bug_ == Bug::skip_receipt && rng_.chance(0.1)) return;
        if (bug_ == Bug::no_broken && receipt->kind == Receipt::Kind::broken) return;
        put("receipt", std::to_string(receipt->seq), receipt_text(*receipt));
    }
}

void Book::became_durable(const RecordName& name, const std::string& value) {
    const auto read = [](auto record) {
        MUST(record.has_value());
        return std::move(*record);
    };
    if (name.first == "job") {
        auto job = read(wire::unpack<JobRecord>(value));
        const JobId id = job.report.id;
        jobs_[id] = std::move(job);
        stored_now_.push_back(id);
        if (on_stored) on_stored(jobs_[id]);
    }
    if (name.first == "node") nodes_[name.second] = read(wire::unpack<NodeRecord>(value));
    if (name.first == "account") {
        const auto account = read(wire::unpack<AccountRecord>(value));
        accounts_[account.holder] = account;
    }
    if (name.first == "meta") meta_ = read(wire::unpack<MetaRecord>(value));
    if (name.first == "receipt") {
        const auto receipt = read(parse_receipt(value));
        stored_now_.push_back(receipt.job);
        if (on_receipt) on_receipt(receipt);
        if (receipt.kind == Receipt::Kind::broken) return;  // no part of what the job has cost
        if (!receipt.moves() && failure.empty() &&
            (receipt.uid == liars_uid) != (receipt.job.seq >= lied_jobs))
            failure = receipt.job.text() + " is paid by user " + std::to_string(receipt.uid);
        Sum& sum = receipts_[receipt.job];
        sum.paid += receipt.paid;
        sum.run += receipt.run;
        sum.files_requests += receipt.files_requests;
    }
}

// Its orders leave with their tickets, as marketd has it.
void Book::leaves(const market::Send& s, const Say& say) {
    FromMarket message = s.message;
    auto* const order = std::get_if<Order>(&message);
    if (!std::holds_alternative<JobNote>(message) && !(order && gives_orders_)) return;
    const Job* const job = order ? market_->find(order->id) : nullptr;
    if (const auto ticket = job ? Orders::ticket(*job, *order) : std::nullopt) {
        order->ticket = std::to_string(ticket->number);
        on_ticket(*ticket);
    }
    journal_->then([say, node = s.node, message = std::move(message)] { say(node, message); });
}

Nanos Book::step(Nanos now, const Say& say) {
    Outputs out;
    stored_now_.clear();
    market_->solve(now, out);
    // it dies between one record and the next
    const bool torn = bug_ == Bug::torn_commit && rng_.chance(0.05);
    for (const StoreOp& op : out.store)
        if (!torn || !std::holds_alternative<Receipt>(op)) store(op);
    for (const StoreOp& op : out.store)
        if (const auto* job = std::get_if<JobRecord>(&op); job && on_decided) on_decided(*job);
    for (const Send& s : out.send) leaves(s, say);
    const Journal::Flushed flushed = journal_->flush(now);
    if (torn) restart(now);
    // Checks the records that this step has stored. Checking all records is slow where there are
    // many, so that happens once in as many steps as there are records, divided by eight.
    constexpr size_t few = 8;
    const bool all = torn || ++steps_unchecked_ * few >= jobs_.size();
    for (const StoreOp& op : out.store) {
        const auto* job = std::get_if<JobRecord>(&op);
        const auto kept = job ? jobs_.find(job->report.id) : jobs_.end();
        if (!all && kept != jobs_.end()) check_job(kept->first, kept->second);
    }
    if (all) check();
    for (const Journal::Call& call : flushed.calls)
        if (!torn) call();
    return std::min(market_->next_call(), journal_->next());
}

Nanos Book::charged(const JobId& id) const {
    const auto sum = receipts_.find(id);
    const auto job = jobs_.find(id);
    return (sum == receipts_.end() ? Nanos{} : sum->second.run) +
           (job == jobs_.end() ? Nanos{} : job->second.tab.run);
}

void Book::check_job(const JobId& id, const JobRecord& record) {
    if (!failure.empty()) return;
    const auto sum = receipts_.find(id);
    const Money receipts =
        (sum == receipts_.end() ? Money{} : sum->second.paid) + record.tab.amount;
    const Money cost = record.account.amount, budget = record.report.terms.budget;
    const uint64_t requests = sum == receipts_.end() ? 0 : sum->second.files_requests;
    if (requests != record.tab.files_requests)
        failure = id.text() + " has receipts for " + std::to_string(record.tab.files_requests) +
                  " requests of files, they say " + std::to_string(requests);
    if (receipts != cost)
        failure = id.text() + " has cost " + format_money(cost) + ", its receipts say " +
                  format_money(receipts);
    // A liar may change what he has said of his own jobs.
    if (budget.micro > 0 && cost > budget && !liars.contains(id.home))
        failure = id.text() + " has cost " + format_money(cost) + ", its budget is " +
                  format_money(budget);
}

void Book::check() {
    steps_unchecked_ = 0;
    if (!failure.empty()) return;
    failure = market_->audit();
    for (const auto& [id, record] : jobs_) check_job(id, record);
    Money sum;
    for (const auto& [holder, account] : accounts_) sum += account.balance;
    if (sum.micro != 0) failure = "the balances add up to " + format_money(sum);
}

}  // namespace souk::sim
