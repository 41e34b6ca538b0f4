// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/return_history.hpp"

#include <map>
#include <tuple>

#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

constexpr const char* kind_return = "return";

// Keys sort as the numbers do.
std::string key_of(uint64_t number) {
    const std::string text = std::to_string(number);
    return std::string(20 - text.size(), '0') + text;
}

}  // namespace

Status ReturnHistory::load() {
    std::map<uint64_t, OwnerReturn> returns;  // the oldest first
    TRY(commits_.read_all(kind_return, [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(OwnerReturn before, wire::unpack<OwnerReturn>(row.value));
        returns.insert_or_assign(before.number, std::move(before));
        return {};
    }));
    for (auto& [number, before] : returns) returns_.load(std::move(before));
    return {};
}

void ReturnHistory::began(const std::string& cause, const std::string& why) {
    OwnerReturns::Guests guests = guests_.guests_now();
    guests.lowered = false;  // they will be in a moment
    keep(returns_.began(Loop::now(), unix_now(), cause, why, guests));
}

void ReturnHistory::see() {
    if (!returns_.open()) return;
    keep(returns_.see(Loop::now(), guests_.guests_now()));
}

void ReturnHistory::ended() { keep(returns_.ended(Loop::now(), guests_.guests_now())); }

void ReturnHistory::keep(const OwnerReturns::News& news) {
    if (news.kept) {
        tell_missed(*news.kept);
        commits_.put(kind_return, key_of(news.kept->number), wire::pack(*news.kept),
                     Durable::later);
    }
    for (const uint64_t number : news.forgotten)
        commits_.erase(kind_return, key_of(number), Durable::later);
    timer_.cancel();
    if (const Nanos due = returns_.due(); due != Nanos::never())
        timer_ = loop_.at(due, [this] { see(); });
}

// The market may refund the owner for the job that was in the way (refund_permille): the job whose
// id begins the reason ("n1.7: it stands in memory"). It is told once. A market that is away at
// that moment does not hear of it.
void ReturnHistory::tell_missed(const OwnerReturn& now) {
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
        market_.ask(std::move(request), [](const wire::CtlReply&) {});
    }
    told_missed_ = now;
}

wire::CtlReply ReturnHistory::request(const wire::CtlRequest& request) const {
    constexpr size_t most = OwnerReturns::kept_max, shown = 20;
    wire::CtlReply reply;
    const auto limit =
        request.args.empty() ? std::optional<size_t>(shown) : whole_number<size_t>(request.args[0]);
    reply.ok = limit && *limit <= most && request.args.size() <= 1;
    if (!reply.ok) {
        reply.error = "history takes a number up to " + std::to_string(most) + ", or nothing";
        return reply;
    }
    JsonWriter j;
    j.begin_object().field("node", node_);
    returns_.write(j, *limit);
    reply.json = j.end_object().take();
    return reply;
}

std::vector<Metric> ReturnHistory::metrics() const {
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
