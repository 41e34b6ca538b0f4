// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_policy.hpp"

#include <algorithm>
#include <map>

#include "kernel/base/check.hpp"
#include "market/core/overtaking.hpp"
#include "market/sim/coallocation_profile.hpp"

namespace souk::sim::coallocation {
namespace {

// FCFS, FPFS and what lies between (market/core/overtaking.hpp). After each start the queue is
// tried from its head again, as the reference does it.
class Passing : public Policy {
  public:
    Passing(const Placement& placement, uint32_t passes_max)
        : placement_(placement), queue_(passes_max) {}

    std::vector<Order> act(const View& view) override {
        std::vector<Order> out;
        Idle idle(view.idle.begin(), view.idle.end());
        queue_.pass({view.queue.begin(), view.queue.end()}, true, [&](uint32_t job) {
            auto where = placement_.place(view.jobs[job], idle);
            if (!where) return false;
            take(idle, *where);
            out.push_back({job, std::move(*where)});
            return true;
        });
        return out;
    }

  private:
    const Placement& placement_;
    market::Overtaking<uint32_t> queue_;
};

class Easy : public Policy {
  public:
    explicit Easy(const Placement& placement) : placement_(placement) {}

    std::vector<Order> act(const View& view) override {
        std::vector<Order> out;
        Idle idle(view.idle.begin(), view.idle.end());
        std::vector<Holding> holdings = holdings_of(view);
        const auto start = [&](uint32_t job, Allocation where) {
            take(idle, where);
            const int64_t takes = estimated_ms(view.jobs[job], where, *view.terms);
            holdings.push_back({view.now_ms + takes, where});
            out.push_back({job, std::move(where)});
        };
        size_t i = 0;
        for (; i < view.queue.size(); ++i) {
            auto where = placement_.place(view.jobs[view.queue[i]], idle);
            // The placement may find no room although the job fits where it has reserved: use that
            // place.
            if (!where && first_ == view.queue[i] && fits(held_.where, idle)) where = held_.where;
            if (!where) break;
            start(view.queue[i], std::move(*where));
        }
        if (i == view.queue.size()) return out;
        reserve(view, view.queue[i], idle, holdings);
        Idle extra = idle_at(held_.at_ms, idle, holdings);
        take(extra, held_.where);
        while (++i < view.queue.size()) {
            const uint32_t job = view.queue[i];
            auto where = placement_.place(view.jobs[job], idle);
            if (!where) continue;
            const auto ends_by = [&](const Allocation& a) {
                return view.now_ms + estimated_ms(view.jobs[job], a, *view.terms) <= held_.at_ms;
            };
            if (!ends_by(*where) && !fits(*where, extra)) {
                Idle beside = idle;
                for (size_t c = 0; c < beside.size(); ++c)
                    beside[c] = std::min(beside[c], extra[c]);
                where = placement_.place(view.jobs[job], beside);
                if (!where) continue;
            }
            if (!ends_by(*where)) take(extra, *where);
            start(job, std::move(*where));
        }
        return out;
    }
    std::optional<int64_t> promised_ms(uint32_t job) const override {
        return job == first_ ? std::optional(promised_ms_) : std::nullopt;
    }

  private:
    static Idle idle_at(int64_t ms, Idle idle, std::span<const Holding> holdings) {
        for (const Holding& h : holdings)
            if (h.until_ms <= ms) give(idle, h.where);
        return idle;
    }
    // Reserves processors for the job. If it has a reservation already, the earlier of the two
    // stays, so that a job never starts later than it was promised.
    void reserve(const View& view, uint32_t job, const Idle& idle,
                 std::span<const Holding> holdings) {
        const bool has = first_ == job && held_.at_ms > view.now_ms &&
                         fits(held_.where, idle_at(held_.at_ms, idle, holdings));
        std::vector<int64_t> ends;
        for (const Holding& h : holdings) ends.push_back(h.until_ms);
        std::sort(ends.begin(), ends.end());
        ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
        for (const int64_t at : ends) {
            if (has && at >= held_.at_ms) break;
            auto where = placement_.place(view.jobs[job], idle_at(at, idle, holdings));
            if (!where) continue;
            held_ = {at, at, std::move(*where)};
            if (first_ != job) promised_ms_ = at;
            promised_ms_ = std::min(promised_ms_, at);
            first_ = job;
            return;
        }
        MUST(has && "a job that fits when all others have ended");
    }
    const Placement& placement_;
    uint32_t first_ = UINT32_MAX;  // who has the reservation
    int64_t promised_ms_ = 0;
    Reservation held_;
};

class Conservative : public Policy {
  public:
    Conservative(const Placement& placement, uint32_t depth)
        : placement_(placement), depth_(depth) {}

    std::vector<Order> act(const View& view) override {
        Profile profile(view.now_ms, view.idle, holdings_of(view));
        const auto queue = view.queue.first(std::min<size_t>(view.queue.size(), depth_));
        for (const uint32_t job : queue) keep(view, job, profile);
        std::vector<Order> out;
        for (const uint32_t job : queue) {
            improve(view, job, profile);
            const auto at = promises_.find(job);
            if (at->second.now.at_ms > view.now_ms) continue;
            out.push_back({job, std::move(at->second.now.where)});
            promises_.erase(at);
        }
        return out;
    }
    // A reservation may begin when nothing happens: later ones were in the way of an earlier start.
    std::optional<int64_t> wake_ms() const override {
        std::optional<int64_t> out;
        for (const auto& [job, promised] : promises_)
            if (!out || promised.now.at_ms < *out) out = promised.now.at_ms;
        return out;
    }
    std::optional<int64_t> promised_ms(uint32_t job) const override {
        const auto at = promises_.find(job);
        return at == promises_.end() ? std::nullopt : std::optional(at->second.first_ms);
    }

  private:
    // The reservation goes into the profile as it is, or is lost.
    void keep(const View& view, uint32_t job, Profile& profile) {
        const auto at = promises_.find(job);
        if (at == promises_.end() || !at->second.valid) return;
        Reservation& r = at->second.now;
        // The time of the reservation has come or passed, so the reservation moves to now.
        if (r.at_ms < view.now_ms) {
            r.until_ms += view.now_ms - r.at_ms;
            r.at_ms = view.now_ms;
        }
        if (profile.has_room(r))
            profile.take(r);
        else
            at->second.valid = false;
    }
    void improve(const View& view, uint32_t job, Profile& profile) {
        const auto at = promises_.find(job);
        const bool has = at != promises_.end() && at->second.valid;
        if (has) profile.give(at->second.now);
        std::optional<Reservation> found = profile.earliest(view.jobs[job], placement_, *view.terms,
                                                            has ? at->second.now.at_ms : INT64_MAX);
        if (!found && has) {
            profile.take(at->second.now);
            return;
        }
        MUST(found && "a job that fits when all others have ended");
        profile.take(*found);
        if (at == promises_.end())
            promises_[job] = {*found, found->at_ms, true};
        else
            at->second.now = *found, at->second.valid = true;
    }
    struct Promised {
        Reservation now;
        int64_t first_ms;
        bool valid;
    };
    const Placement& placement_;
    const uint32_t depth_;
    std::map<uint32_t, Promised> promises_;  // of those that wait
};

#define SOUK_POLICIES(X)                                                                 \
    X("fcfs", std::make_unique<Passing>(placement, 0))                                   \
    X("fpfs", std::make_unique<Passing>(placement, UINT32_MAX))                          \
    X("bounded_overtaking", std::make_unique<Passing>(placement, options.overtakes_max)) \
    X("easy", std::make_unique<Easy>(placement))                                         \
    X("conservative", std::make_unique<Conservative>(placement, options.depth))

}  // namespace

std::span<const PolicyEntry> policies() {
#define SOUK_POLICY_ENTRY(name, make)                                               \
    {name,                                                                          \
     []([[maybe_unused]] const Placement& placement,                                \
        [[maybe_unused]] const PolicyOptions& options) -> std::unique_ptr<Policy> { \
         return make;                                                               \
     }},
    static constexpr PolicyEntry all[] = {SOUK_POLICIES(SOUK_POLICY_ENTRY)};
    return all;
}

std::unique_ptr<Policy> make_policy(std::string_view name, const Placement& placement,
                                    const PolicyOptions& options) {
    for (const PolicyEntry& entry : policies())
        if (entry.name == name) return entry.make(placement, options);
    return nullptr;
}

}  // namespace souk::sim::coallocation
