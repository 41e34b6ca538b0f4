// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/why_reply.hpp"

#include "kernel/base/json.hpp"
#include "market/daemon/job_list.hpp"
#include "market/daemon/job_reply.hpp"

namespace souk {
namespace {

using market::Job;
using market::Market;
using market::Node;
using market::Reason;

void write_reasons(JsonWriter& w, const std::vector<Reason>& reasons) {
    w.key("reasons").begin_array();
    for (const Reason& reason : reasons) {
        w.begin_object();
        market::write_reason(w, reason);
        w.end_object();
    }
    w.end_array().end_object();
}

std::string of_job(const Market& market, const Job& job, uint32_t uid, Nanos now) {
    const JobReport& r = job.record.report;
    JsonWriter w;
    w.begin_object().field("job", r.id.text());
    w.field("user", r.user).field("status", status_of(job));
    if (uid != market::root_uid && uid != r.uid) return w.end_object().take();
    write_reasons(w, market.reasons(job, now));
    return w.take();
}

}  // namespace

Result<std::string> why_reply(const Market& market, const FinishedJobs& finished,
                              const std::string& name, uint32_t uid, Nanos now) {
    if (const auto id = parse_job_id(name)) {
        if (const Job* job = market.find(*id)) return of_job(market, *job, uid, now);
        TRY_ASSIGN(auto record, finished.find(*id));
        if (!record) return fail(CauseCode::not_found, "no such job: " + id->text());
        return of_job(market, finished_job(std::move(*record)), uid, now);
    }
    const Node* node = market.find_node(name);
    if (!node) return fail("'" + name + "' is neither a job nor a node of this market");
    JsonWriter w;
    w.begin_object().field("node", name);
    w.field("status", market.provider_state(*node, now));
    write_reasons(w, {market.reason(*node, now)});
    return w.take();
}

}  // namespace souk
