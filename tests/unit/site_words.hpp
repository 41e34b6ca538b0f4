// SPDX-License-Identifier: GPL-2.0-or-later
// Words between two sites as Worlds take them, with what each says back (market/core/lent_jobs.hpp,
// site_guests.hpp): the parts that SitePair and SiteNet share.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "tests/unit/market_world.hpp"

namespace souk::market {

inline void must(const Status& done) {
    ck_assert_msg(done.has_value(), "%s", done ? "" : done.error().message.c_str());
}

// A market is told of a job of that site. Returns what it answers if it does not take it.
inline std::optional<SiteNote> refused(World& w, const SiteGuests::Site& site,
                                       const SiteJob& word) {
    const JobId& id = word.report.id;
    if (const auto it = w.stored_jobs.find(id);
        !w.market->find(id) && it != w.stored_jobs.end() && it->second.finish_seq > 0)
        w.market->recall(it->second);
    const Status taken = w.market->site_job(site, word, w.now);
    if (taken) return std::nullopt;
    SiteNote no;
    no.note.id = id;
    no.no = taken.error();
    no.number = word.number;
    return no;
}

// A market is given an order for a job of its own by that site. Returns what it answers if it does
// not pass it on.
inline std::optional<OrderFailed> not_passed(World& w, const std::string& site, const Order& o,
                                             uint64_t number) {
    const Status passed = w.market->site_order(site, o, w.now, number);
    if (passed) return std::nullopt;
    OrderFailed f;
    f.id = o.id, f.seq = o.seq, f.node = o.node, f.why = passed.error();
    return f;
}

// Jobs that lie frozen at another site come home some time later, as HomeEvacuations has it.
inline void bring_home(World& w, std::map<JobId, Nanos>& frozen_since) {
    for (auto& [id, job] : w.jobs) {
        JobReport& r = job.report;
        const bool is_away = r.phase == JobPhase::frozen && !r.in_place && !job.doing &&
                             !of_site(r.where).site.empty();
        if (!is_away) {
            frozen_since.erase(id);
        } else if (frozen_since.try_emplace(id, w.now).first->second + Nanos::from_s(2) < w.now) {
            r.where = id.home;
            r.stay_run = r.stats.run_time;
            r.epoch = r.epoch.next();
            w.tell(job);
        }
    }
}

}  // namespace souk::market
