// SPDX-License-Identifier: GPL-2.0-or-later
// Marketd: questions that only one node can answer: the home of a job (its story), or the node on
// which it runs (its load). They are passed on to that agentd, and its answer back. An agentd says
// in its hello whether it can be asked. See marketd.hpp.
#include "market/daemon/marketd.hpp"
#include "market/wire/codec.hpp"

namespace souk {
namespace {

constexpr size_t relays_max = 1'024;

wire::CtlReply no_answer(Cause why) {
    wire::CtlReply reply;
    reply.error = std::move(why);
    return reply;
}

}  // namespace

// Nothing of it is there once it has ended.
Result<NodeName> Marketd::node_to_ask(const wire::CtlRequest& request, const JobId& id) const {
    if (request.verb != "load") return id.home;
    const market::Job* const job = market_.find(id);
    if (!job || job->record.report.phase != JobPhase::running)
        return fail(
            CauseCode::not_possible,
            "job " + id.text() + " does not run now: what it uses is counted where it runs");
    return job->record.report.where;
}

Status Marketd::ask_node(uint64_t connection, const wire::CtlRequest& request) {
    if (request.args.empty()) return fail(request.verb + " takes a job's id");
    TRY_ASSIGN(const JobId id, parse_job_id(request.args[0]));
    // The home gives it to nobody but the job's user, whom its own kernel names.
    if (request.verb == "output")
        return fail(CauseCode::not_possible, "the output of job " + id.text() +
                                                 " is on its home, " + id.home +
                                                 ", alone: ask there (marketctl --node " + id.home +
                                                 " output " + id.text() + ")");
    if (request.args.size() != 1) return fail(request.verb + " takes a job's id");
    if (request.uid != market::root_uid) {  // the home takes the market's word for who asks
        const market::Job* job = market_.find(id);
        std::optional<market::JobRecord> ended;
        if (!job) {
            TRY_ASSIGN(ended, finished_->find(id));
        }
        const JobReport* report = job ? &job->record.report : ended ? &ended->report : nullptr;
        if (!report) return fail(CauseCode::not_found, "no such job: " + id.text());
        if (report->uid != request.uid)
            return fail(CauseCode::not_allowed, "job " + id.text() + " is another user's: its " +
                                                    request.verb + " is that user's own");
    }
    TRY_ASSIGN(const NodeName node, node_to_ask(request, id));
    const auto agent = agents_.find(node);
    if (agent == agents_.end())
        return fail(CauseCode::away, "the node " + node + " of job " + id.text() +
                                         " is not connected: it has what is asked for");
    if (!connections_.at(agent->second).answers)
        return fail(CauseCode::not_possible,
                    "the agentd of node " + node + " is of a version that cannot be asked");
    if (relays_.size() >= relays_max)
        return fail(CauseCode::too_many, "too many questions to nodes are under way");
    const uint64_t number = next_relay_++;
    wire::CtlRequest question = request;
    question.request = number;
    Relay& relay = relays_[number];
    relay = {connection, request.request, node, {}};
    relay.limit = loop_.after(answer_within, [this, number, node] {
        end_relay(number,
                  no_answer({CauseCode::away, "node " + node + " did not answer within 5 s"}));
    });
    Status sent = connections_.at(agent->second)
                      .channel->send(wire::frame::ctl_request, wire::pack(question));
    if (!sent) relays_.erase(number);
    return sent;
}

// Only from the node that was asked.
Status Marketd::node_answers(const NodeName& node, const wire::Frame& f) {
    TRY_ASSIGN(wire::CtlReply reply, wire::unpack<wire::CtlReply>(f.body));
    const uint64_t number = reply.request;
    const auto it = relays_.find(number);
    if (it != relays_.end() && it->second.node == node) end_relay(number, std::move(reply));
    return {};
}

void Marketd::end_relay(uint64_t number, wire::CtlReply reply) {
    const auto it = relays_.find(number);
    if (it == relays_.end()) return;
    const Relay relay = std::move(it->second);
    relays_.erase(it);
    reply.request = relay.request;
    send(relay.connection, reply);
}

void Marketd::relays_lost(const NodeName& node) {
    std::vector<uint64_t> lost;
    for (const auto& [number, relay] : relays_)
        if (relay.node == node) lost.push_back(number);
    for (const uint64_t number : lost)
        end_relay(number,
                  no_answer({CauseCode::away, "the connection to node " + node + " broke"}));
}

}  // namespace souk
