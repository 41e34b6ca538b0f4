// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/report_desk.hpp"

#include <algorithm>
#include <utility>

namespace souk {

Status ReportDesk::ask(uint64_t connection, const Connection& c, const wire::CtlRequest& request) {
    const auto of_node = std::ranges::count(all_, c.node, &Asked::from);
    const auto of_user = std::ranges::count_if(
        all_, [&](const Asked& one) { return one.from == c.node && one.uid == request.uid; });
    if (of_node >= int64_t{node_most} || of_user >= int64_t{user_most})
        return fail(CauseCode::too_many, "too many reports are asked for at once: ask again");
    TRY_ASSIGN(UsageReport report, UsageReport::begin(request.args, request.uid));
    all_.push_back({connection, request.request, c.node, request.uid, std::move(report)});
    if (all_.size() == 1) timer_ = loop_.after(Nanos{}, [this] { go_on(); });
    return {};
}

void ReportDesk::go_on() {
    constexpr Nanos breath = Nanos::from_ms(1);
    Asked one = std::move(all_.front());
    all_.pop_front();
    const Result<bool> more = one.report.step(records_.usage());
    if (!connections_.has(one.connection)) {
        // nobody waits for it
    } else if (more && *more) {
        all_.push_back(std::move(one));
    } else {
        const Result<std::string> text =
            more ? one.report.text() : Result<std::string>(tl::unexpected(more.error()));
        connections_.send(one.connection, wire::reply_to(one.request, text));
    }
    if (!all_.empty()) timer_ = loop_.after(breath, [this] { go_on(); });
}

}  // namespace souk
