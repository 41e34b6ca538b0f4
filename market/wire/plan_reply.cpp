// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/wire/plan_reply.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {
namespace {

using market::Job;
using market::Market;
using market::NodesOff;
using market::PlanSpan;

constexpr Nanos plan_usual = Nanos::from_s(86'400), plan_most = Nanos::from_s(31 * 86'400);

struct Asked {
    Nanos until;
    NodesOff off;
};

Result<Nanos> moment(const std::string& word, std::string_view text) {
    const auto seconds = whole_number<uint32_t>(text);
    if (!seconds) return fail("plan: '" + word + "': no time in seconds since 1970");
    return Nanos::from_s(*seconds);
}

Result<Asked> parse(const Market& market, const std::vector<std::string>& words, Nanos unix) {
    Asked asked{unix + plan_usual, {}};
    for (const std::string& word : words) {
        const auto [key, value] = parse_setting(word);
        const size_t at = value.find('@');
        if (key == "until") {
            TRY_ASSIGN(asked.until, moment(word, value));
            if (asked.until <= unix) return fail("plan: its end is over");
            asked.until = std::min(asked.until, unix + plan_most);
        } else if (key == "off" && at != std::string::npos) {
            const NodeName node = value.substr(0, at);
            if (!market.nodes().contains(node))
                return fail(CauseCode::not_found, "plan: no such node: " + node);
            TRY_ASSIGN(asked.off[node], moment(word, value.substr(at + 1)));
        } else {
            return fail("plan: '" + word + "' is neither until=SECONDS nor off=NODE@SECONDS");
        }
    }
    return asked;
}

void write_job(JsonWriter& w, const Job& job, uint32_t uid) {
    const JobReport& r = job.record.report;
    w.field("job", job.id().text()).field("user", r.user);
    if (uid == 0 || uid == r.uid) w.field("name", r.name);
    w.field("cpus", r.terms.cpus).field("memory_mb", r.terms.memory_mb);
}

}  // namespace

Status PlanDesk::may_reckon(const Asker& who, Nanos now) {
    const auto is_old = [&](const auto& one) { return one.second.back() + asks_span < now; };
    std::erase_if(asked_, is_old);
    std::erase_if(asked_from_, is_old);
    if (who.second == 0) return {};
    const auto of = [&](auto& all, const auto& key) {
        const auto known = all.find(key);
        if (known == all.end()) return size_t{0};
        std::deque<Nanos>& times = known->second;
        while (times.front() + asks_span < now) times.pop_front();
        return times.size();
    };
    const bool user = of(asked_, who) >= asks_most;
    if (user || of(asked_from_, who.first) >= asks_node_most)
        return fail(
            CauseCode::not_possible,
            (user ? "plan: you have asked for " + std::to_string(asks_most)
                  : "plan: users of this node have asked for " + std::to_string(asks_node_most)) +
                " plans in " + std::to_string(asks_span.seconds()) + " s: ask again in a moment");
    asked_[who].push_back(now);
    asked_from_[who.first].push_back(now);
    return {};
}

Result<const PlanDesk::Kept*> PlanDesk::plan_of(const Market& market,
                                                const wire::CtlRequest& request, const Asker& who,
                                                Nanos now) {
    std::erase_if(kept_, [&](const Kept& one) {
        return now > one.made + kept_for && now > one.used + read_for;
    });
    const uint64_t number =
        whole_number<uint64_t>(request.after.substr(0, request.after.find('.'))).value_or(0);
    std::string words;
    for (const std::string& word : request.args) words += word + "\n";
    for (Kept& one : kept_) {
        const bool same = one.words == words;
        if (request.after.empty() ? !same || now > one.made + kept_for : one.number != number)
            continue;
        one.used = now;
        return &one;
    }
    if (!request.after.empty())
        return fail("plan: the market has forgotten the parts before this one: ask anew");
    const Nanos unix = now + market.calendar();
    TRY_ASSIGN(const Asked asked, parse(market, request.args, unix));
    TRY(may_reckon(who, now));
    // Whoever reads the parts of one keeps it.
    if (kept_.size() >= kept_most) kept_.erase(std::ranges::min_element(kept_, {}, &Kept::used));
    kept_.push_back({++last_, words, now, now, market.plan(now, asked.until, asked.off)});
    return &kept_.back();
}

Result<std::string> PlanDesk::part(const Market& market, const wire::CtlRequest& request,
                                   const Asker& who, Nanos now, std::string& next) {
    TRY_ASSIGN(const Kept* const kept, plan_of(market, request, who, now));
    const market::MarketPlan& plan = kept->plan;
    const size_t dot = request.after.find('.');
    size_t at = dot == std::string::npos
                    ? 0
                    : whole_number<uint32_t>(request.after.substr(dot + 1)).value_or(0);
    JsonWriter w;
    w.begin_array();
    // A job or a node that has gone since it was reckoned is left out.
    for (; at < plan.spans.size() && w.bytes() < wire::json_part_bytes; ++at) {
        const PlanSpan& s = plan.spans[at];
        const auto node = market.nodes().find(s.node);
        const Job* const job = market.find(s.job);
        if (node == market.nodes().end() || !job) continue;
        w.begin_object().field("node", s.node).field("kind", to_string(s.kind));
        w.field("node_cpus", node->second.record.report.cpus);
        write_job(w, *job, request.uid);
        w.field("from_unix_s", s.from.seconds())
            .field("to_unix_s", s.to.seconds())
            .field("end_known", s.end_known)
            .end_object();
    }
    for (; at >= plan.spans.size() && at < plan.spans.size() + plan.later.size() &&
           w.bytes() < wire::json_part_bytes;
         ++at) {
        const Job* const job = market.find(plan.later[at - plan.spans.size()]);
        if (!job) continue;
        w.begin_object().field("kind", "later");
        write_job(w, *job, request.uid);
        w.end_object();
    }
    if (at < plan.spans.size() + plan.later.size())
        next = std::to_string(kept->number) + "." + std::to_string(at);
    w.end_array();
    return w.take();
}

wire::CtlReply PlanDesk::answer(const Market& market, const wire::CtlRequest& request,
                                const std::string& from, Nanos now) {
    std::string next;
    wire::CtlReply reply =
        wire::reply_to(request.request, part(market, request, {from, request.uid}, now, next));
    reply.next = std::move(next);
    return reply;
}

}  // namespace souk
