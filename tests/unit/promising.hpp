// SPDX-License-Identifier: GPL-2.0-or-later
// Promising: a World whose jobs have deadlines that are promised, and end when their work is done.
#pragma once

#include "tests/unit/reservation_world.hpp"

namespace souk::market::reserving {

// A World whose jobs end when their work is done, by the speed of the nodes where they run.
struct Promising {
    struct Work {
        Nanos needs;  // truly, on a standard machine
        Nanos done{};
        Nanos deadline;             // as promised by the user's own word; Unix time
        Nanos ended{INT64_MAX};     // Unix time
        Nanos promised{INT64_MAX};  // when it was, Unix time
        bool longer = false;        // than was stated
    };
    World w;
    std::map<JobId, Work> works;

    Promising() {
        w.calendar = monday;
        w.market->set_calendar(monday);
    }
    Nanos unix() const { return w.now + monday; }
    JobId submit(const NodeName& home, int64_t price, Nanos within, Nanos stated, Nanos needs,
                 int32_t cpus = 1, Money budget = {}) {
        JobId id = w.submit(home, price, Nanos::never(), cpus, 10, budget);
        JobReport& r = w.jobs[id].report;
        r.terms.finish = within;
        r.terms.runtime = stated;
        r.command = "solve " + id.text();
        Booking b;
        b.promise = true;
        r.terms.booking = b;
        // The home says Unix time.
        r.submitted = r.submitted + monday;
        works[id] = {needs,         {}, r.submitted + within, Nanos{INT64_MAX}, Nanos{INT64_MAX},
                     needs > stated};
        w.tell(w.jobs[id]);
        return id;
    }
    std::vector<JobId> submit_gang(const NodeName& home, int64_t price, Nanos within, Nanos stated,
                                   Nanos needs, uint32_t of, uint32_t required = UINT32_MAX) {
        uint32_t n = 0;
        auto ids = w.submit_gang(home, price, of, 1, Nanos::never(), required, [&](JobReport& r) {
            r.terms.finish = within;
            r.terms.runtime = stated;
            r.command = "solve";
            r.terms.memory_mb = 10;
            if (!r.optional) r.terms.booking.edit().promise = true;
            // They are submitted one after the other.
            r.submitted = r.submitted + monday + Nanos::from_ms(10 * n++);
        });
        for (const JobId& id : ids)
            works[id] = {needs,         {}, unix() + within, Nanos{INT64_MAX}, Nanos{INT64_MAX},
                         needs > stated};
        return ids;
    }
    void run_for(Nanos span) {
        constexpr Nanos step = Nanos::from_ms(100);
        for (const Nanos until = w.now + span; w.now < until;) {
            w.run_for(step);
            for (auto& [id, work] : works) {
                World::HomeJob& job = w.jobs[id];
                if (job.report.phase == JobPhase::finished) continue;
                const Job* const known = w.market->find(id);
                if (known && known->record.promised->deadline.ns > 0 &&
                    work.promised.ns == INT64_MAX)
                    work.promised = unix();
                if (job.report.phase != JobPhase::running || job.doing) continue;
                work.done += Nanos{step.ns / 100 * w.providers.at(job.report.where).speed};
                if (work.done < work.needs) continue;
                work.ended = unix();
                w.end(job);
            }
        }
    }
    const Promised& promised(const JobId& id) const {
        const auto stored = w.stored_jobs.find(id);
        static const Promised none{};
        return stored == w.stored_jobs.end() ? none : *stored->second.promised;
    }
    const Contract& contract(const JobId& id) const { return *w.market->find(id)->record.contract; }
    ReasonCode code(const JobId& id) const { return w.market->reason(*w.market->find(id)).code; }
    NodeName where(const JobId& id) {
        return w.phase(id) == JobPhase::running ? w.market->find(id)->record.report.where : "";
    }
    std::vector<Receipt> broken(const JobId& id) const {
        std::vector<Receipt> all;
        for (const Receipt& r : w.receipts)
            if (r.kind == Receipt::Kind::broken && r.job == id) all.push_back(r);
        return all;
    }
    void owner(const NodeName& node, bool lends) {
        ProviderReport p = w.providers[node];
        p.on_market = lends;
        w.set_provider(p);
    }
};

}  // namespace souk::market::reserving
