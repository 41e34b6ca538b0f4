// SPDX-License-Identifier: GPL-2.0-or-later
// Hall: machines, jobs and a solver without a market, for the machines that a Market is put
// together from: Admission, Places, Quoter. Nothing has an order, a home or a price in force; what
// the solver says is so.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "market/core/admission.hpp"
#include "market/core/book.hpp"
#include "market/core/places.hpp"
#include "tests/unit/unit.hpp"

namespace souk::market {

constexpr Nanos hall_now = Nanos::from_s(1'000);

// Machines of four CPUs and jobs of users, all of them free.
struct Hall final : Admission::Jobs {
    Book book{{1'000, 1'000, 0}};
    Solver solver;
    Admission admission;
    Places places{book};
    std::set<const Job*> fixed;  // nothing is decided about them: they run

    const Job& at(const JobId& id) const override { return book.jobs().at(id); }
    Job* of(JobKey key) const override { return book.job_of(key); }
    std::optional<bool> runs_anyhow(const Job& job) const override {
        return fixed.contains(&job) ? std::optional(true) : std::nullopt;
    }
    JobDemand spec_of(const Job& job, Job::Held held) const override {
        JobDemand spec;
        spec.value = job.bid;
        spec.cpus = job.record.report.terms.cpus;
        spec.user = job.record.report.uid;
        spec.arrival = job.record.arrived;
        const auto known = solver.job(job.key);
        if (known) spec.state = known->state, spec.place = known->place;
        spec.pin = held == Job::Held::none ? Pin::free : Pin::frozen;
        return spec;
    }

    explicit Hall(int machines = 1) {
        for (int i = 1; i <= machines; ++i) {
            node("n" + std::to_string(i), 100 * i);
        }
    }
    Node& node(const NodeName& name, int32_t speed) {
        Node& node = book.node(name);
        node.connected = node.record.has_report = true;
        ProviderReport& r = node.record.report;
        r.on_market = true;
        r.cpus = 4;
        r.speed = speed;
        r.memory_mb = node.room_mb = 1'000;
        r.reserve = Money::units(1);
        places.changed();
        ProviderSpec spec;
        spec.cpus = r.cpus;
        spec.speed = speed;
        spec.reserve = r.reserve;
        spec.memory_mb = r.memory_mb;
        ck_assert(solver.add_provider(node.key, spec));
        return node;
    }
    Job& job(uint64_t seq, uint32_t uid, int64_t bid, int32_t cpus = 1) {
        JobReport r;
        r.id = {"n1", seq};
        r.uid = uid;
        r.submitted = Nanos{static_cast<int64_t>(seq)};
        r.terms.cpus = cpus;
        Job& made = **book.admit(r);
        made.record.report = r;
        made.record.arrived = r.submitted;
        made.bid = Money::units(bid);
        ck_assert(solver.add_job(made.key, spec_of(made, Job::Held::none)));
        admission.list(made);
        return made;
    }
    void limit(uint32_t uid, std::optional<int32_t> jobs, std::optional<int32_t> cpus = {}) {
        User& user = book.user(uid);
        user.record.limits.jobs = jobs;
        user.record.limits.cpus = cpus;
        admission.limits_changed(user);
        for (auto& [id, job] : book.jobs()) {
            if (job.user != &user) continue;
            admission.list(job);
            ck_assert(solver.change_job(job.key, spec_of(job, job.held)));
        }
    }
    Admission::Decision decide() {
        Admission::Decision d = admission.decide(*this, book.users(), solver, hall_now);
        std::map<uint32_t, size_t> held;
        for (const auto& [id, job] : book.jobs())
            if (job.held != Job::Held::none) ++held[job.user->record.uid];
        for (const auto& [uid, user] : book.users()) ck_assert_uint_eq(user.held, held[uid]);
        return d;
    }
    bool runs(const Job& job) const { return solver.job(job.key)->state == JobState::running; }
    // "1 3", of all that run.
    std::string running() const {
        std::string all;
        for (const auto& [id, job] : book.jobs())
            if (runs(job)) all += (all.empty() ? "" : " ") + std::to_string(id.seq);
        return all;
    }
};

}  // namespace souk::market
