// SPDX-License-Identifier: GPL-2.0-or-later
// Marketd: the decision log, and what it answers from it. See marketd.hpp.
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "market/daemon/marketd.hpp"
#include "market/daemon/user_replies.hpp"

namespace souk {
namespace {

// Unix seconds, or "-": none.
Result<Nanos> time_of(const std::string& text, Nanos otherwise) {
    if (text == "-") return otherwise;
    const auto seconds = whole_number<int64_t>(text);
    if (!seconds) return fail("decisions: '" + text + "' is not a number of Unix seconds");
    return Nanos::from_s(std::clamp<int64_t>(*seconds, 0, INT64_MAX / 2'000'000'000));
}

}  // namespace

// A market whose decisions cannot be logged goes on.
void Marketd::open_decision_log() {
    if (config_.decisions_mb == 0) return;
    auto opened = DecisionShell::open(loop_, log_, config_.state + "/decisions",
                                      {config_.decisions_mb << 20, config_.decisions_age},
                                      market_.decisions());
    if (!opened) return warn("there is no decision log: " + opened.error().message);
    decision_log_ = std::move(*opened);
    market_.log_to(decision_log_->text());
}

// FROM TO USER: a part of the log's text. Whose jobs are whose is shown to root, and to each user
// of his own.
wire::CtlReply Marketd::decisions(const wire::CtlRequest& request) const {
    wire::CtlReply reply;
    reply.request = request.request;
    const auto answered = [&]() -> Result<std::string> {
        if (!decision_log_)
            return fail(CauseCode::not_possible,
                        "this market keeps no decision log (decisions_mb is 0)");
        if (request.args.size() != 3) return fail("decisions takes FROM TO USER");
        DecisionFiles::Ask ask;
        TRY_ASSIGN(ask.from, time_of(request.args[0], Nanos{INT64_MIN}));
        TRY_ASSIGN(ask.to, time_of(request.args[1], Nanos::never()));
        if (request.uid != 0) ask.uid = request.uid;
        if (request.args[2] != "-") {
            TRY_ASSIGN(const uint32_t uid, user_of(market_, request.args[2]));
            if (request.uid != 0 && request.uid != uid)
                return fail(CauseCode::not_allowed,
                            "only root may see which jobs are those of others");
            ask.uid = uid;
        }
        return decision_log_->files().read(ask, request.after, reply.next);
    }();
    reply.ok = answered.has_value();
    if (!answered) {
        reply.error = as_asked(answered.error());
        return reply;
    }
    JsonWriter w;
    w.begin_array().value(*answered).end_array();
    reply.json = w.take();
    return reply;
}

}  // namespace souk
