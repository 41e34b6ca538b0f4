// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/decision_reply.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
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

wire::CtlReply decisions_reply(const market::Market& market, const DecisionShell* log,
                               const wire::CtlRequest& request) {
    wire::CtlReply reply;
    reply.request = request.request;
    const auto answered = [&]() -> Result<std::string> {
        if (!log)
            return fail(CauseCode::not_possible,
                        "this market keeps no decision log (decisions_mb is 0)");
        if (request.args.size() != 3) return fail("decisions takes FROM TO USER");
        DecisionFiles::Ask ask;
        TRY_ASSIGN(ask.from, time_of(request.args[0], Nanos{INT64_MIN}));
        TRY_ASSIGN(ask.to, time_of(request.args[1], Nanos::never()));
        if (request.uid != 0) ask.uid = request.uid;
        if (request.args[2] != "-") {
            TRY_ASSIGN(const uint32_t uid, user_of(market, request.args[2]));
            if (request.uid != 0 && request.uid != uid)
                return fail(CauseCode::not_allowed,
                            "only root may see which jobs are those of others");
            ask.uid = uid;
        }
        return log->files().read(ask, request.after, reply.next);
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
