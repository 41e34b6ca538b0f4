// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/run_times.hpp"

#include <algorithm>
#include <vector>

namespace souk::market {

RunTimes::Key RunTimes::key_of(uint32_t uid, const std::string& command) {
    return {uid, command.substr(0, std::min<size_t>(command.find(' '), 256))};
}

void RunTimes::ended(const JobRecord& job) {
    const JobReport& r = job.report;
    const bool well = r.phase == JobPhase::finished && !r.cancelled && r.why.empty() &&
                      r.wait_status == 0 && !r.terms.booking->holds;
    if (!well || job.done.ns <= 0) return;
    const Key key = key_of(r.uid, r.command);
    if (!programs_.contains(key)) forget_oldest(r.uid);
    Program& p = programs_[key];
    if (p.runs > 0) by_age_.erase(p.newest);
    p.work[p.runs++ % runs_most] = job.done;
    p.newest = ++clock_;
    by_age_.emplace(p.newest, key);
    if (programs_.size() <= programs_most) return;
    programs_.erase(by_age_.begin()->second);
    by_age_.erase(by_age_.begin());
}

// One user's many programs push out none of others.
void RunTimes::forget_oldest(uint32_t uid) {
    const auto from = programs_.lower_bound({uid, ""});
    size_t had = 0;
    auto oldest = from;
    for (auto it = from; it != programs_.end() && it->first.first == uid; ++it, ++had)
        if (it->second.newest < oldest->second.newest) oldest = it;
    if (had < of_user_most) return;
    by_age_.erase(oldest->second.newest);
    programs_.erase(oldest);
}

std::optional<RunTimes::Learned> RunTimes::of(uint32_t uid, const std::string& command) const {
    const auto found = programs_.find(key_of(uid, command));
    if (found == programs_.end() || found->second.runs < runs_least) return std::nullopt;
    const Program& p = found->second;
    const size_t n = std::min(p.runs, runs_most);
    std::vector<Nanos> work(p.work.begin(), p.work.begin() + static_cast<ptrdiff_t>(n));
    std::sort(work.begin(), work.end());
    return Learned{work[n / 2], work[n - 1] + Nanos{work[n - 1].ns / 10}, n};
}

}  // namespace souk::market
