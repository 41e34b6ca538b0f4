// SPDX-License-Identifier: GPL-2.0-or-later
// Marketd: one step: what came in is decided and committed, and then it leaves. See marketd.hpp.
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/daemon/marketd.hpp"
#include "market/daemon/quote_replies.hpp"
#include "market/store/records.hpp"
#include "market/wire/codec.hpp"

namespace souk {

Nanos Marketd::calendar() { return unix_now() - Loop::now(); }

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

void Marketd::store(const std::vector<market::StoreOp>& ops) {
    for (const market::StoreOp& op : ops) {
        if (const auto* job = std::get_if<market::JobRecord>(&op)) {
            if (job->finish_seq > finished_->newest()) sum_up(*job);  // not one that is told again
            if (job->finish_seq > 0)
                finished_->append(*job);
            else
                state_.put(kind_job, job->report.id.text(), wire::pack(*job));
        }
        if (const auto* node = std::get_if<market::NodeRecord>(&op))
            state_.put(kind_node, node->node, wire::pack(*node));
        if (const auto* account = std::get_if<market::AccountRecord>(&op))
            state_.put(kind_account, account->holder.text(), wire::pack(*account));
        if (const auto* receipt = std::get_if<market::Receipt>(&op)) {
            book_->append(*receipt);
            sum_up(*receipt);
        }
        if (const auto* meta = std::get_if<market::MetaRecord>(&op))
            state_.put(kind_meta, "market", wire::pack(*meta));
        if (const auto* user = std::get_if<market::UserRecord>(&op))
            state_.put(kind_user, std::to_string(user->uid), wire::pack(*user));
        if (const auto* price = std::get_if<market::PriceRecord>(&op))
            state_.put(kind_price, std::to_string(price->minute), wire::pack(*price));
        if (const auto* gone = std::get_if<market::EraseNode>(&op))
            state_.erase(kind_node, gone->node);
        if (const auto* gone = std::get_if<market::ErasePrice>(&op))
            state_.erase(kind_price, std::to_string(gone->minute));
        if (const auto* gone = std::get_if<market::EraseUser>(&op))
            state_.erase(kind_user, std::to_string(gone->uid));
    }
}

template <class Record>
void Marketd::sum_up(const Record& record) {
    if (const Status added = usage_->add(record); !added)
        log_.limited("usage", Loop::now(), Level::error, "cannot add to the sums for reports",
                     {{"WHY", added.error()}});
}

// Once a day, a bounded number at once.
void Marketd::trim_usage() {
    constexpr size_t rows_max = 256;
    constexpr Nanos soon = Nanos::from_ms(100), later = Nanos::from_s(86'400);
    const int64_t today = (Loop::now() + calendar()).ns / later.ns;
    const Result<bool> more = usage_->trim(today, rows_max);
    if (!more)
        log_.limited("usage", Loop::now(), Level::error, "cannot erase old sums for reports",
                     {{"WHY", more.error()}});
    usage_timer_ = loop_.after(more && *more ? soon : later, [this] {
        trim_usage();
        wake();  // commits
    });
}

void Marketd::step() {
    constexpr Nanos long_step = Nanos::from_ms(2), rest_max = Nanos::from_ms(25);
    const Nanos began = Loop::now();
    market::Outputs out;
    market_.set_calendar(calendar());
    market_.solve(Loop::now(), out);
    if (decision_log_) decision_log_->stepped(market_, unix_now());
    store(out.store);
    for (const QuoteAsked& q : std::exchange(quotes_, {}))
        replies_.push_back({q.connection, quote_reply(market_, q.home, program_ != nullptr,
                                                      q.request, Loop::now())});
    if (finished_->count() > config_.finished_max) trim_finished();
    for (market::Send& s : out.send) held_.push_back(std::move(s));
    if (!std::exchange(release_waits_, true)) state_.journal().then([this] { release(); });
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
}

void Marketd::flush() {
    Journal& journal = state_.journal();
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
            state_.journal().tick(Loop::now());
            flush();
        });
    for (const auto& call : flushed.calls) call();
}

namespace {

// A line for each of the first orders of a step: with those of the home and the nodes they are what
// `journalctl JOB=` has of a job, and ORDER is the same in all lines of one order.
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

// Lets go what is decided and durable.
void Marketd::release() {
    release_waits_ = false;
    if (decision_log_) decision_log_->write();
    log_orders(log_, held_);
    for (market::Send& s : std::exchange(held_, {})) {
        if (auto* order = std::get_if<Order>(&s.message)) give_ticket(*order);
        const auto agent = agents_.find(s.node);
        if (agent == agents_.end()) continue;
        const uint64_t number = agent->second;
        const Status sent =
            connections_.at(number).channel->send(wire::type_of(s.message), wire::pack(s.message));
        if (!sent)
            drop(number, sent.error().message);
        else if (std::holds_alternative<Order>(s.message) && input_at_ != Nanos::never())
            decisions_.add(Loop::now() - input_at_);
    }
    input_at_ = Nanos::never();
    for (const Reply& r : std::exchange(replies_, {})) send(r.connection, r.reply);
    answer_waiters();
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
