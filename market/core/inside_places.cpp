// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/inside_places.hpp"

#include <algorithm>
#include <string>
#include <tuple>

namespace souk::market {

// The place where the job is already, or else the one with the most room, of those that have fewest
// components of its gang. null: none has room.
Job* InsidePlaces::roomiest(const std::vector<Job*>& places, const Job& job,
                            std::map<JobId, Room>& rooms) const {
    const JobTerms& t = job.record.report.terms;
    Job* best = nullptr;
    const JobReport& r = job.record.report;
    const auto key = [&](const Job& place) {
        const Room& room = rooms.at(place.id());
        const bool is_there = r.phase == JobPhase::running && place.record.report.where == r.where;
        return std::tuple(room.of_unit, !is_there, -room.cpus);
    };
    for (Job* const place : places) {
        const JobTerms& held = place->record.report.terms;
        if (place->phase() != JobPhase::running || place->record.unbacked) continue;
        const NodeName& where = place->record.report.where;
        if (where != r.where && (Places::is_rooted(job) || !places_.may_run_at(job, where)))
            continue;
        const Room& room =
            rooms.try_emplace(place->id(), Room{held.cpus, held.memory_mb}).first->second;
        // A place that names no memory bounds none.
        const bool fits = t.cpus <= room.cpus && (held.memory_mb == 0 || t.memory_mb <= room.mb);
        if (fits && (!best || key(*place) < key(*best))) best = place;
    }
    return best;
}

// Those that are inside stay there; the others follow in their order as long as there is room. All
// components of a gang have room, or none is let in.
void InsidePlaces::place(const std::set<JobId>& booked, const Put& put) {
    std::vector<std::vector<Job*>> units;
    std::set<std::string> gangs;
    for (const JobId& id : booked) {
        Job& job = *book_.find(id);
        if (job.record.report.terms.booking->within.empty()) continue;
        if (!is_component(job))
            units.push_back({&job});
        else if (gangs.insert(gang_name(job)).second)
            units.push_back(gangs_.of(job));
    }
    std::stable_sort(units.begin(), units.end(), [](const auto& a, const auto& b) {
        const auto key = [](const Job& job) {
            const bool is_in = job.booked == Booked::inside || job.phase() == JobPhase::running;
            return std::tuple(!is_in, job.record.arrived, job.id());
        };
        return key(*a.front()) < key(*b.front());
    });
    std::map<JobId, Room> rooms;
    for (const std::vector<Job*>& unit : units) place_unit(unit, rooms, put);
}

void InsidePlaces::place_unit(const std::vector<Job*>& unit, std::map<JobId, Room>& rooms,
                              const Put& put) {
    const JobReport& first = unit.front()->record.report;
    const auto may_run_in = [&](const Job& place) {
        return place.record.report.uid == first.uid ||
               (place.record.given != 0 && place.record.given == first.uid);
    };
    const std::string& name = first.terms.booking->within;
    const auto wait = [&](ReasonCode code) {
        for (Job* const job : unit)
            put(*job, Booked::outside, {}, Reason(code).with(Figure::job, name));
    };
    // A job that waits for another one takes no room from those behind it.
    if (std::any_of(unit.begin(), unit.end(), [](const Job* job) {
            return job->phase() == JobPhase::waiting && !job->record.report.waits_for.empty();
        }))
        return wait(ReasonCode::inside_waits);
    const auto id = parse_job_id(name);
    Job* const outer = id ? book_.find(*id) : nullptr;
    if (!outer || outer->phase() == JobPhase::finished || !may_run_in(*outer) ||
        !outer->record.report.terms.booking->holds ||
        !outer->record.report.terms.booking->within.empty())
        return wait(ReasonCode::inside_gone);
    const std::vector<Job*> places =
        is_component(*outer) ? gangs_.of(*outer) : std::vector<Job*>{outer};
    if (is_component(*unit.front()) && unit.size() < first.components)
        return wait(ReasonCode::inside_waits);
    std::vector<std::pair<Job*, Job*>> put_there;  // a job and its place
    for (Job* const job : unit) {
        Job* const place = roomiest(places, *job, rooms);
        if (!place) break;
        Room& room = rooms.at(place->id());
        room.cpus -= job->record.report.terms.cpus;
        room.mb -= job->record.report.terms.memory_mb;
        ++room.of_unit;
        put_there.emplace_back(job, place);
    }
    for (auto& [place, room] : rooms) room.of_unit = 0;
    if (put_there.size() == unit.size()) {
        for (const auto& [job, place] : put_there)
            put(*job, Booked::inside, place->record.report.where, {});
        return;
    }
    for (const auto& [job, place] : put_there) {
        rooms.at(place->id()).cpus += job->record.report.terms.cpus;
        rooms.at(place->id()).mb += job->record.report.terms.memory_mb;
    }
    // While a place is on its way, what is inside stays as it is, and follows.
    const bool moves = std::any_of(places.begin(), places.end(),
                                   [](const Job* place) { return is_on_its_way(*place); });
    const bool runs = std::any_of(places.begin(), places.end(), [](const Job* place) {
        return place->phase() == JobPhase::running && !place->record.unbacked;
    });
    if (moves && unit.front()->booked == Booked::inside) return;
    wait(runs ? ReasonCode::inside_full : ReasonCode::inside_waits);
}

}  // namespace souk::market
