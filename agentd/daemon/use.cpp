// SPDX-License-Identifier: GPL-2.0-or-later
// How long guests run here, as this node measures it, for the market: agentd/core/use_meter.hpp.
#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"

namespace souk {
namespace {

constexpr const char* kind_use = "use";
constexpr Nanos use_told_every = Nanos::from_s(10), use_kept_every = Nanos::from_s(60);

}  // namespace

Status GuestHost::load_use() {
    return commits_.read_all(kind_use, [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(GuestUse use, wire::unpack<GuestUse>(row.value));
        meter_.load(std::move(use), Loop::now());
        return {};
    });
}

void GuestHost::note_use(const GuestKey& key, GuestState state) {
    const auto use = meter_.saw(key, state, Loop::now());
    if (!use) return;
    commits_.put(kind_use, key.text(), wire::pack(*use), Durable::later);
    if (meter_.has_news()) own_.use_changed();
}

UseReport GuestHost::use(bool all) {
    if (Loop::now() >= use_kept_ + use_kept_every) {
        use_kept_ = Loop::now();
        for (const GuestUse& use : meter_.running(use_kept_))
            commits_.put(kind_use, use.key.text(), wire::pack(use), Durable::later);
    }
    for (const GuestKey& key : meter_.forget(Loop::now()))
        commits_.erase(kind_use, key.text(), Durable::later);
    return meter_.report(all, Loop::now(), [this](const GuestKey& key) {
        const Cell* const c = cell(key);
        const auto used = c ? load_.cpu_time(c->cgroup_name()) : std::nullopt;
        return used ? *used : Nanos{};
    });
}

std::optional<LoadSample> GuestHost::load(const GuestKey& key) const {
    const auto c = cells_.find(key);
    if (c == cells_.end()) return std::nullopt;
    return load_.load(c->second->cgroup_name());
}

std::optional<Nanos> GuestHost::memory_stall(const GuestKey& key) const {
    const auto c = cells_.find(key);
    if (c == cells_.end()) return std::nullopt;
    return load_.memory_stall(c->second->cgroup_name());
}

std::vector<JobSend> GuestHost::sends() const {
    std::vector<JobSend> all;
    precopy_->progress(Loop::now(), all);
    transfers_->progress(Loop::now(), all);
    for (const auto& [key, cell] : cells_)
        if (const auto p = cell->writing(Loop::now()))
            all.push_back({key.id, key.epoch, node_, p->written, p->bytes, p->span});
    return all;
}

// -------------------------------------------------------------------------------------------------

void Agent::use_changed() {
    if (std::exchange(use_due_, true)) return;
    loop_.defer([this] {
        use_due_ = false;
        tell_use(false);
    });
}

void Agent::tell_use(bool all) {
    UseReport report = guests_->use(all);
    constexpr size_t jobs_max = 1024;
    for (size_t i = 0; i < report.jobs.size(); i += jobs_max) {
        const auto begin = report.jobs.begin() + static_cast<ptrdiff_t>(i);
        const auto n = static_cast<ptrdiff_t>(std::min(jobs_max, report.jobs.size() - i));
        market_->send(UseReport{{begin, begin + n}});
    }
}

// Each second while there is any.
void Agent::tell_sends() {
    constexpr size_t sends_max = 1024;
    UseReport report{{}, guests_->sends()};
    if (report.sends.empty()) return;
    report.sends.resize(std::min(report.sends.size(), sends_max));
    market_->send(report);
}

void Agent::tick_use() {
    use_timer_ = loop_.after(use_told_every, [this] { tick_use(); });
    tell_use(false);
}

}  // namespace souk
