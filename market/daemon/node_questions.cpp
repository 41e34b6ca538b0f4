// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/node_questions.hpp"

#include <optional>
#include <utility>

#include "market/wire/codec.hpp"

namespace souk {

// A job that has ended uses nothing any more.
Result<NodeName> NodeQuestions::node_to_ask(const wire::CtlRequest& request,
                                            const JobId& id) const {
    if (request.verb != "load") return id.home;
    const market::Job* const job = market_.find(id);
    if (!job || job->record.report.phase != JobPhase::running)
        return fail(
            CauseCode::not_possible,
            "job " + id.text() + " does not run now: what it uses is counted where it runs");
    return job->record.report.where;
}

// A job is its user's own business. The home takes the market's word for who asks.
Status NodeQuestions::may_ask(const wire::CtlRequest& request, const JobId& id) const {
    if (request.uid == market::root_uid) return {};
    const market::Job* job = market_.find(id);
    std::optional<market::JobRecord> ended;
    if (!job) {
        TRY_ASSIGN(ended, records_.finished().find(id));
    }
    const JobReport* report = job ? &job->record.report : ended ? &ended->report : nullptr;
    if (!report) return fail(CauseCode::not_found, "no such job: " + id.text());
    if (report->uid == request.uid) return {};
    return fail(CauseCode::not_allowed, "job " + id.text() + " is another user's: its " +
                                            request.verb + " is that user's own");
}

Status NodeQuestions::ask(uint64_t connection, const wire::CtlRequest& request) {
    if (request.args.empty()) return fail(request.verb + " takes a job's id");
    TRY_ASSIGN(const JobId id, parse_job_id(request.args[0]));
    // The home gives it to nobody but the job's user, whom its own kernel names.
    if (request.verb == "output")
        return fail(CauseCode::not_possible, "the output of job " + id.text() +
                                                 " is on its home, " + id.home +
                                                 ", alone: ask there (marketctl --node " + id.home +
                                                 " output " + id.text() + ")");
    if (request.args.size() != 1) return fail(request.verb + " takes a job's id");
    TRY(may_ask(request, id));
    TRY_ASSIGN(const NodeName node, node_to_ask(request, id));
    Connection* const agent = connections_.agent(node);
    if (!agent)
        return fail(CauseCode::away, "the node " + node + " of job " + id.text() +
                                         " is not connected: it has what is asked for");
    if (!agent->answers)
        return fail(CauseCode::not_possible,
                    "the agentd of node " + node + " is of a version that cannot be asked");
    return relayed_.pass(connection, request, said_of(node), *agent->channel, true);
}

Status NodeQuestions::answered(const NodeName& node, const wire::Frame& f) {
    TRY_ASSIGN(wire::CtlReply reply, wire::unpack<wire::CtlReply>(f.body));
    relayed_.answered(said_of(node), std::move(reply));
    return {};
}

}  // namespace souk
