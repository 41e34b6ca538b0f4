// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/use_reports.hpp"

#include <algorithm>
#include <utility>

#include "agentd/store/records.hpp"

namespace souk {
namespace {

constexpr const char* kind_use = "use";
constexpr Nanos use_told_every = Nanos::from_s(10), use_kept_every = Nanos::from_s(60);
// One message holds no more of them.
constexpr size_t jobs_max = 1024, sends_max = 1024;

}  // namespace

Status UseReports::load() {
    return commits_.read_all(kind_use, [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(GuestUse use, wire::unpack<GuestUse>(row.value));
        meter_.load(std::move(use), Loop::now());
        return {};
    });
}

void UseReports::saw(const GuestKey& key, GuestState state) {
    const auto use = meter_.saw(key, state, Loop::now());
    if (!use) return;
    commits_.put(kind_use, key.text(), wire::pack(*use), Durable::later);
    if (!meter_.has_news() || std::exchange(due_, true)) return;
    loop_.defer([this] {
        due_ = false;
        tell(false);
    });
}

UseReport UseReports::report(bool all) {
    if (Loop::now() >= kept_ + use_kept_every) {
        kept_ = Loop::now();
        for (const GuestUse& use : meter_.running(kept_))
            commits_.put(kind_use, use.key.text(), wire::pack(use), Durable::later);
    }
    for (const GuestKey& key : meter_.forget(Loop::now()))
        commits_.erase(kind_use, key.text(), Durable::later);
    return meter_.report(all, Loop::now(), [this](const GuestKey& key) {
        return guests_.cpu_time(key).value_or(Nanos{});
    });
}

void UseReports::tell(bool all) {
    UseReport report = this->report(all);
    for (size_t i = 0; i < report.jobs.size(); i += jobs_max) {
        const auto begin = report.jobs.begin() + static_cast<ptrdiff_t>(i);
        const auto n = static_cast<ptrdiff_t>(std::min(jobs_max, report.jobs.size() - i));
        market_.send(UseReport{{begin, begin + n}});
    }
}

void UseReports::tell_sends() {
    UseReport report{{}, guests_.sends()};
    if (report.sends.empty()) return;
    report.sends.resize(std::min(report.sends.size(), sends_max));
    market_.send(report);
}

void UseReports::tick() {
    timer_ = loop_.after(use_told_every, [this] { tick(); });
    tell(false);
}

}  // namespace souk
