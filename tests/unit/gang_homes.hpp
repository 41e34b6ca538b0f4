// SPDX-License-Identifier: GPL-2.0-or-later
// GangHomes: what the homes of a World do with the components of gangs (docs/gangs.md), as small as
// a market can tell: a component that is started, or thaws, is held; when all required ones are
// held all run; what is not held in time, or fails, takes all others back; a freeze of one freezes
// all; a cancel of one ends all. To be ticked each second or so.
#pragma once

#include <map>
#include <vector>

#include "tests/unit/market_world.hpp"

namespace souk::market {

struct GangHomes {
    static constexpr Nanos held_most = Nanos::from_s(60);
    World& w;
    std::map<JobId, Order> held;
    std::map<JobId, Nanos> since;  // it was started, or thaws
    size_t releases = 0, taken_back = 0, frozen = 0;

    explicit GangHomes(World& world) : w(world) {
        w.holds = [this](World::HomeJob& job, const Order& order) { return hold(job, order); };
        w.start_failed = [this](World::HomeJob& job) { take_others_back(job); };
        w.aborted = [this](World::HomeJob& job) {
            for (World::HomeJob* const one : gang(job)) {
                one->report.cancelled = true;
                one->report.why = "cancelled";
                held.erase(one->report.id);
                w.end(*one);
            }
        };
    }
    static bool is_required(const World::HomeJob& job) {
        return !job.report.gang.empty() && !job.report.optional;
    }
    static bool comes(const World::HomeJob& job) {
        return job.report.phase == JobPhase::starting || job.report.phase == JobPhase::thawing;
    }
    // The required ones that have not ended.
    std::vector<World::HomeJob*> gang(const World::HomeJob& job) {
        std::vector<World::HomeJob*> all;
        for (auto& [id, one] : w.jobs)
            if (is_required(one) && id.home == job.report.id.home &&
                one.report.gang == job.report.gang && one.report.phase != JobPhase::finished)
                all.push_back(&one);
        return all;
    }
    bool hold(World::HomeJob& job, const Order& order) {
        if (!is_required(job) || !comes(job)) return false;
        ck_assert_msg(order.hold || job.report.phase == JobPhase::thawing,
                      "%s is to run without the others", job.report.id.text().c_str());
        held[job.report.id] = order;
        const std::vector<World::HomeJob*> all = gang(job);
        for (const World::HomeJob* const one : all)
            if (!held.contains(one->report.id)) return true;
        ++releases;
        for (World::HomeJob* const one : all) {
            const Order its = held.extract(one->report.id).mapped();
            w.runs(*one, its);
        }
        return true;
    }
    void take_back(World::HomeJob& job, CauseCode code) {
        if (!comes(job)) return;
        JobReport& r = job.report;
        const auto its = held.extract(r.id);
        const Order order = its ? its.mapped() : *job.doing;
        job.doing.reset();
        job.done_at = Nanos::never();
        r.phase = r.phase == JobPhase::starting ? JobPhase::waiting : JobPhase::frozen;
        if (r.phase == JobPhase::waiting) r.where.clear();
        r.to.clear();
        ++taken_back;
        OrderFailed failed;
        failed.id = r.id, failed.seq = order.seq, failed.node = order.node;
        failed.why = souk::Cause(code, "not all of its components are held");
        if (w.connected.contains(r.id.home))
            ck_assert(w.market->report(r.id.home, failed, w.now).has_value());
        w.tell(job);
    }
    void take_others_back(World::HomeJob& job) {
        if (!is_required(job)) return;
        for (World::HomeJob* const one : gang(job))
            if (one != &job) take_back(*one, CauseCode::components_taken_back);
    }
    // One is frozen, or freezes: the others that run freeze, too.
    void freeze_with(World::HomeJob& job) {
        const JobPhase p = job.report.phase;
        if (p != JobPhase::freezing && p != JobPhase::frozen) return;
        for (World::HomeJob* const one : gang(job)) {
            if (one->report.phase != JobPhase::running || one->doing) continue;
            one->doing.emplace();
            one->doing->kind = Order::Kind::suspend;
            one->done_at = w.now + w.transit;
            one->report.phase = JobPhase::freezing;
            World::stop_clock(*one, w.now);
            ++frozen;
            w.tell(*one);
        }
    }
    void tick() {
        for (auto& [id, job] : w.jobs) {
            if (!is_required(job)) continue;
            if (!comes(job)) {
                since.erase(id);
                held.erase(id);
                freeze_with(job);
            } else if (since.try_emplace(id, w.now).first->second + held_most < w.now) {
                take_back(job, CauseCode::components_late);
                take_others_back(job);
            }
        }
    }
};

}  // namespace souk::market
