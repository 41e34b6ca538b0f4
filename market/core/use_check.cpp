// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/use_check.hpp"

#include <algorithm>

namespace souk::market::use_check {
namespace {

bool agree(Nanos a, Nanos b) { return a - b <= tolerance(b) && b - a <= tolerance(a); }

// The part of what was charged that lies beyond `measured`.
Difference take_off(Stay& stay) {
    Difference d{stay.node, stay.epoch, stay.run, stay.measured, {}, {}};
    if (stay.measured >= stay.run) return d;
    d.back = stay.run - stay.measured;
    d.cost.micro =
        static_cast<int64_t>(static_cast<__int128>(stay.cost.micro) * d.back.ns / stay.run.ns);
    stay.run = stay.measured;
    stay.cost -= d.cost;
    return d;
}

}  // namespace

Nanos believable(const JobRecord& r, Nanos ran, Nanos now) {
    if (r.ran_since.ns <= 0) return Nanos{INT64_MAX};
    return std::max(ran, now - r.ran_since);
}

void believed(JobRecord& r, Nanos total, bool complete, Nanos now) {
    if (complete || r.ran_since.ns == 0) r.ran_since = std::max(Nanos{}, now - total);
}

void begins(JobRecord& r, const NodeName& node, Epoch epoch) {
    if (!r.stays.empty() && r.stays.back().node == node && r.stays.back().epoch == epoch) {
        r.stays.back().over = false;
        return;
    }
    ended(r);
    if (r.stays.size() >= stays_max) r.stays.erase(r.stays.begin());
    Stay stay;
    stay.node = node;
    stay.epoch = epoch;
    r.stays.push_back(std::move(stay));
}

std::optional<Nanos> before_thaw(const JobRecord& r, Nanos total) {
    const JobReport& now = r.report;
    if (r.stays.empty() || now.phase == JobPhase::waiting || now.phase == JobPhase::starting ||
        now.phase == JobPhase::thawing || now.where != r.stays.back().node ||
        now.epoch == r.stays.back().epoch || now.stay_run.ns < 0)
        return std::nullopt;
    return end_of_newest(r, now.stay_run + r.skew, total);
}

Nanos end_of_newest(const JobRecord& r, Nanos said, Nanos total) {
    Nanos back{};
    if (!r.stays.empty()) {
        const Stay& stay = r.stays.back();
        back = std::clamp(stay.run - std::max(Nanos{}, stay.measured), Nanos{}, clock_tolerance);
    }
    return std::clamp(said, r.billed - back, std::max(r.billed, total));
}

Nanos least(const JobRecord& r) {
    return r.billed - (r.stays.empty() ? r.billed : r.stays.back().run);
}

void charged(JobRecord& r, Nanos span, Money cost) {
    if (r.stays.empty()) return;
    Stay& stay = r.stays.back();
    stay.run = std::max(Nanos{}, stay.run + span);
    stay.cost = std::max(Money{}, stay.cost + cost);
}

void ended(JobRecord& r) {
    if (!r.stays.empty()) r.stays.back().over = true;
}

std::optional<Difference> heard(JobRecord& r, const NodeName& node, const JobUse& use) {
    const auto it = std::find_if(r.stays.begin(), r.stays.end(), [&](const Stay& s) {
        return s.node == node && s.epoch == use.epoch;
    });
    if (it == r.stays.end()) return std::nullopt;
    // It only grows: a word that comes late says less than one before it.
    it->measured = std::max(it->measured, use.run);
    it->measured_all = use.ended;
    if (it->over || it->measured_all) return std::nullopt;  // settled at the end
    if (it->run - it->measured <= tolerance(it->measured)) return std::nullopt;
    return take_off(*it);
}

std::optional<Difference> settle(JobRecord& r) {
    for (auto it = r.stays.begin(); it != r.stays.end();) {
        if (!it->over || !it->measured_all) {
            ++it;
            continue;
        }
        std::optional<Difference> found;
        if (!agree(it->run, it->measured)) found = take_off(*it);
        const bool newest = it + 1 == r.stays.end();
        if (newest) it->measured = it->run;  // it is settled
        it = newest ? it + 1 : r.stays.erase(it);
        if (found) return found;
    }
    return std::nullopt;
}

}  // namespace souk::market::use_check
