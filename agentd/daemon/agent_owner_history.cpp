// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: how it was each time that the owner of this node came back
// (agentd/core/owner_returns.hpp), in its database, and for him.
#include <algorithm>
#include <tuple>

#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"

namespace souk {
namespace {

constexpr const char* kind_return = "return";

// In the order of their numbers.
std::string key_of(uint64_t number) {
    const std::string text = std::to_string(number);
    return std::string(20 - text.size(), '0') + text;
}

}  // namespace

Status Agent::load_returns() {
    std::map<uint64_t, OwnerReturn> returns;  // the oldest first
    TRY(state_->read_all(kind_return, [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(OwnerReturn before, wire::unpack<OwnerReturn>(row.value));
        returns.insert_or_assign(before.number, std::move(before));
        return {};
    }));
    for (auto& [number, before] : returns) returns_.load(std::move(before));
    returns_.configured(config_.promise);
    TRY_ASSIGN(const auto paused, state_->db().get("owner", "paused"));
    paused_ = paused.has_value();
    return {};
}

void Agent::keep(const OwnerReturns::News& news) {
    if (news.kept) tell_missed(*news.kept);
    if (news.kept)
        state_->put(kind_return, key_of(news.kept->number), wire::pack(*news.kept), Durable::later);
    for (const uint64_t number : news.forgotten)
        state_->erase(kind_return, key_of(number), Durable::later);
    returns_timer_.cancel();
    if (const Nanos due = returns_.due(); due != Nanos::never())
        returns_timer_ = loop_.at(due, [this] { see_return(); });
}

// The market may refund the owner for the job that was in the way (refund_permille): the one that
// begins the reason ("n1.7: it stands in memory"). Told once; a market that is away does not hear.
void Agent::tell_missed(const OwnerReturn& now) {
    using Which = OwnerReturns::Which;
    if (told_missed_.number != now.number) told_missed_ = {};
    const std::tuple<Which, const std::string&, const std::string&> parts[] = {
        {Which::free_cpu, told_missed_.cpu_missed, now.cpu_missed},
        {Which::free_memory, told_missed_.memory_missed, now.memory_missed},
        {Which::empty, told_missed_.empty_missed, now.empty_missed}};
    for (const auto& [which, before, why] : parts) {
        if (why.empty() || !before.empty()) continue;
        const auto job = parse_job_id(why.substr(0, why.find(':')));
        if (!job) continue;
        wire::CtlRequest request;
        request.verb = "promise-missed";
        request.args = {job->text(), to_string(which)};
        market_->ask(std::move(request), [](const wire::CtlReply&) {});
    }
    told_missed_ = now;
}

OwnerReturns::Guests Agent::guests_now() const {
    Guest::Here here = guests_->machine().here(config_.node);
    OwnerReturns::Guests now;
    now.running = here.running;
    now.in_memory = here.in_memory;
    now.here = here.all;
    now.memory_mb = here.memory_mb;
    now.who = std::move(here.who);
    now.lowered = rung_ != OwnerUse::Rung::none && rank_trouble_.empty();
    now.trouble = rank_trouble_;
    if (rung_ != OwnerUse::Rung::none && offer_->provider().share().when_here() &&
        presence_policy().on_return != OwnerUsePolicy::Return::leave) {
        now.share = offer_->provider().lent_by();
        now.within_share = share_ && !share_->memory_waits(offer_->provider().lent().memory_mb,
                                                           offer_->machine_size());
    }
    return now;
}

void Agent::see_return() {
    if (!returns_.open()) return;
    keep(returns_.see(Loop::now(), guests_now()));
}

std::string Agent::history_json(size_t limit) const {
    JsonWriter j;
    j.begin_object().field("node", config_.node);
    returns_.write(j, limit);
    return j.end_object().take();
}

std::vector<Metric> Agent::promise_metrics() const {
    using Which = OwnerReturns::Which;
    Metric times{"souk_node_owner_seconds",
                 "From the first sign that the owner is back until that is his, by quantile.",
                 false,
                 {}};
    Metric missed{"souk_node_owner_missed",
                  "Of the kept returns, those that missed that promise.",
                  false,
                  {}};
    for (const Which which : {Which::free_cpu, Which::free_memory, Which::empty}) {
        const OwnerReturns::Figures f = returns_.figures(which);
        missed.samples.push_back({{{"promise", to_string(which)}}, double(f.missed)});
        if (f.count == 0) continue;
        const std::pair<const char*, Nanos> quantiles[] = {
            {"0.5", f.p50}, {"0.99", f.p99}, {"0.999", f.p999}};
        for (const auto& [name, span] : quantiles)
            times.samples.push_back({{{"promise", to_string(which)}, {"quantile", name}},
                                     static_cast<double>(span.ns) / 1e9});
    }
    std::vector<Metric> all;
    all.push_back(gauge("souk_node_owner_returns", "Kept returns of the owner of this node.",
                        static_cast<double>(returns_.all().size())));
    all.push_back(std::move(missed));
    if (!times.samples.empty()) all.push_back(std::move(times));
    return all;
}

}  // namespace souk
