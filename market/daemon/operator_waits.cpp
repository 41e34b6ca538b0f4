// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/operator_waits.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"

namespace souk {

namespace {

constexpr int64_t limit_ms_max = 86'400'000;
constexpr size_t waiters_max = 1'024;
constexpr ptrdiff_t user_waiters_max = 32;                // of one connection
constexpr ptrdiff_t users_waiters_max = waiters_max / 8;  // of all its users but root

Result<int64_t> whole(const std::string& text) {
    const auto value = whole_number<int64_t>(text);
    if (!value || *value < 0) return fail("await: '" + text + "' is not a number");
    return *value;
}

std::string done_json(const market::Job& job, const std::string& text, bool freezes,
                      uint64_t before) {
    const JobReport& r = job.record.report;
    JsonWriter w;
    w.begin_object()
        .field("id", job.id().text())
        .field("done", true)
        .field("where", r.where)
        .field("message", text);
    if (freezes && r.stats.image_bytes > 0) w.field("bytes", r.stats.image_bytes);
    if (const LastMove& m = r.stats.last_move;
        !freezes && r.stats.migrations > before && m.total.ns > 0) {
        w.field("last_move", move_name(m.forecast))
            .field("pause_ms", m.pause.ms())
            .field("total_ms", m.total.ms());
        if (m.forecast.frozen_bytes + m.forecast.precopy_bytes > 0)
            w.field("bytes", m.forecast.frozen_bytes + m.forecast.precopy_bytes);
    }
    w.end_object();
    return w.take();
}

std::string not_done_json(const JobId& id, const Cause& text) {
    JsonWriter w;
    w.begin_object().field("id", id.text()).field("done", false);
    write_cause(w, "message", text);
    return w.end_object().take();
}

}  // namespace

Status OperatorWaits::await(uint64_t connection, const wire::CtlRequest& request) {
    if (request.args.size() != 6)
        return fail("await takes 6 arguments, not " + std::to_string(request.args.size()));
    if (waiters_.size() >= waiters_max)
        return fail(CauseCode::too_many, "too many wait for orders");
    Waiter w;
    w.connection = connection;
    w.request = request.request;
    TRY_ASSIGN(w.job, parse_job_id(request.args[0]));
    if (const auto* const job = market_.find(w.job);
        request.uid != 0 && (!job || request.uid != job->record.report.uid))
        return fail(CauseCode::not_allowed, "only root, or the job's user, may wait for an order");
    w.uid = request.uid;
    const auto waiting = [&](bool of_user) {
        return std::count_if(waiters_.begin(), waiters_.end(), [&](const Waiter& other) {
            return other.connection == connection &&
                   (of_user ? other.uid == w.uid : other.uid != 0);
        });
    };
    const bool too_many = waiting(true) >= user_waiters_max || waiting(false) >= users_waiters_max;
    if (w.uid != 0 && (waiters_.size() >= waiters_max / 2 || too_many))
        return fail(CauseCode::too_many, "too many wait for orders");
    if (request.args[1] != "-") w.node = request.args[1];
    w.freezes = request.args[2] == "freeze";
    TRY_ASSIGN(const int64_t failures, whole(request.args[3]));
    TRY_ASSIGN(const int64_t before, whole(request.args[4]));
    TRY_ASSIGN(const int64_t limit_ms, whole(request.args[5]));
    w.failures = static_cast<uint64_t>(failures);
    w.before = static_cast<uint64_t>(before);
    const Nanos now = Loop::now();
    w.limit = Nanos::from_ms(std::min(limit_ms, limit_ms_max));
    w.deadline = now + w.limit;
    if (!request.after.empty()) {  // the caller has waited already
        TRY_ASSIGN(const int64_t until_ms, whole(request.after));
        w.deadline = Nanos::from_ms(until_ms);
    }
    w.answer_at = std::min(w.deadline, now + answer_within);
    waiters_.push_back(std::move(w));
    return {};
}

// An order that was carried out, after which the market has moved the job on, was overtaken by
// nobody's order.
Cause OperatorWaits::moved_on(const Waiter& w, const Cause& over) const {
    const market::Job* const job = market_.find(w.job);
    if (!job || over.code != CauseCode::overtaken) return over;
    const JobReport& r = job->record.report;
    if ((w.freezes ? r.stats.freezes : r.stats.migrations) <= w.before) return over;
    const std::string why = market_.comment(*job);
    if (w.freezes)
        return "it was frozen, and the market has let it go on (--hold keeps it)" +
               (why.empty() ? "" : ": " + why);
    return "it was moved" + (w.node.empty() ? "" : " to " + w.node) + ", and is on " + r.where +
           " since" + (why.empty() ? "" : ": " + why);
}

void OperatorWaits::answer() {
    const Nanos now = Loop::now();
    Nanos next = Nanos::never();
    std::vector<Reply> answers;
    std::erase_if(waiters_, [&](const Waiter& w) {
        if (!connections_.has(w.connection)) return true;
        wire::CtlReply reply;
        reply.request = w.request;
        reply.ok = true;
        const auto outcome = market_.outcome(w.job, w.node, w.freezes, w.failures);
        if (outcome.done) {
            reply.json = done_json(*market_.find(w.job), outcome.text, w.freezes, w.before);
        } else if (outcome.over) {
            reply.json = not_done_json(w.job, moved_on(w, outcome.text));
        } else if (now >= w.deadline) {
            reply.json = not_done_json(
                w.job, "not within " + std::to_string(w.limit.ns / 1'000'000'000) +
                           " s; it goes on" + (outcome.text.empty() ? "" : ": " + outcome.text));
        } else if (now >= w.answer_at) {
            reply.next = std::to_string(w.deadline.ns / 1'000'000);
        } else {
            next = std::min(next, w.answer_at);
            return false;
        }
        answers.push_back({w.connection, std::move(reply)});
        return true;
    });
    for (const Reply& r : answers) connections_.send(r.connection, r.reply);
    if (next == Nanos::never())
        timer_.cancel();
    else
        timer_ = loop_.at(next, [this] { answer(); });
}

}  // namespace souk
