// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/plan_reply.hpp"

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

Result<std::string> plan_reply(const Market& market, const std::vector<std::string>& words,
                               const std::string& after, Nanos now, uint32_t uid,
                               std::string& next) {
    const Nanos unix = now + market.calendar();
    TRY_ASSIGN(const Asked asked, parse(market, words, unix));
    const market::MarketPlan plan = market.plan(now, asked.until, asked.off);
    size_t at = whole_number<uint32_t>(after).value_or(0);
    JsonWriter w;
    w.begin_array();
    for (; at < plan.spans.size() && w.bytes() < wire::json_part_bytes; ++at) {
        const PlanSpan& s = plan.spans[at];
        w.begin_object().field("node", s.node).field("kind", to_string(s.kind));
        w.field("node_cpus", market.nodes().at(s.node).record.report.cpus);
        write_job(w, *market.find(s.job), uid);
        w.field("from_unix_s", s.from.seconds())
            .field("to_unix_s", s.to.seconds())
            .field("end_known", s.end_known)
            .end_object();
    }
    for (; at >= plan.spans.size() && at < plan.spans.size() + plan.later.size() &&
           w.bytes() < wire::json_part_bytes;
         ++at) {
        w.begin_object().field("kind", "later");
        write_job(w, *market.find(plan.later[at - plan.spans.size()]), uid);
        w.end_object();
    }
    if (at < plan.spans.size() + plan.later.size()) next = std::to_string(at);
    w.end_array();
    return w.take();
}

}  // namespace souk
