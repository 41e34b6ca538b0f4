// SPDX-License-Identifier: GPL-2.0-or-later
// A solve returns changes: none of them twice, none without a reason, and as few bytes moved as
// possible.
#include <utility>
#include <vector>

#include "tests/unit/allocator_world.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

START_TEST(decisions_never_cancel_and_a_second_solve_has_none) {
    for (const Shape& shape : shapes) {
        AllocatorWorld w(4242, shape);
        Solver s;
        for (int step = 0; step < 300; ++step) {
            for (uint64_t i = w.rng.below(5); i > 0; --i) random_event(w, s);
            std::map<uint64_t, JobDemand> before;
            for (const auto& [k, spec] : w.jobs) before[k] = *s.job(JobKey{k});
            const auto span = s.solve(Nanos::from_s(w.clock_s));
            const std::vector<Change> changes(span.begin(), span.end());
            std::map<uint64_t, int> seen;
            for (const Change& c : changes) {
                ck_assert(++seen[c.job.n] == 1);
                const JobDemand& b = before[c.job.n];
                const JobDemand a = *s.job(c.job);
                ck_assert((b.state == JobState::running) ==
                          (c.kind == ChangeKind::move || c.kind == ChangeKind::freeze));
                ck_assert((b.state == JobState::waiting) == (c.kind == ChangeKind::start));
                ck_assert(c.kind == ChangeKind::freeze ? a.state == JobState::frozen
                                                       : a.place == c.to);
                ck_assert(c.kind != ChangeKind::move || c.from != c.to);
            }
            ck_assert(s.solve(Nanos::from_s(w.clock_s)).empty());
        }
    }
}
END_TEST

// Tries every placement that gives each job the class that it has. Returns the fewest bytes of
// running jobs that move, and then of frozen jobs that are thawed elsewhere than they lie.
std::pair<int64_t, int64_t> fewest_bytes(const std::map<uint64_t, uint64_t>& result,
                                         const std::map<uint64_t, JobDemand>& before,
                                         const std::map<uint64_t, ProviderSpec>& providers) {
    std::vector<uint64_t> placed;
    for (const auto& [k, p] : result)
        if (p) placed.push_back(k);
    std::map<uint64_t, int> room;
    for (const auto& [p, m] : providers) room[p] = m.cpus;
    std::pair<int64_t, int64_t> best{INT64_MAX, INT64_MAX};
    auto place = [&](auto&& self, size_t i, std::pair<int64_t, int64_t> bytes) -> void {
        if (bytes >= best) return;
        if (i == placed.size()) {
            best = bytes;
            return;
        }
        const JobDemand& b = before.at(placed[i]);
        const ProviderSpec& had = providers.at(result.at(placed[i]));
        for (const auto& [p, m] : providers) {
            if (room[p] == 0 || !m.accepting || m.speed != had.speed || m.reserve != had.reserve)
                continue;
            --room[p];
            auto more = bytes;
            if (b.place.n != p && b.state != JobState::waiting)
                (b.state == JobState::running ? more.first : more.second) += b.move_bytes;
            self(self, i + 1, more);
            ++room[p];
        }
    };
    place(place, 0, {0, 0});
    return best;
}

START_TEST(no_equal_allocation_moves_fewer_bytes) {
    Shape shape;
    shape.jobs_max = 9;
    shape.providers_max = 4;
    shape.cpus_machine = 3;
    shape.speeds = 2;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        AllocatorWorld w(seed * 131, shape);
        Solver s;
        for (int step = 0; step < 40; ++step) {
            for (uint64_t i = w.rng.below(4); i > 0; --i) random_event(w, s);
            std::map<uint64_t, JobDemand> before;
            std::map<uint64_t, uint64_t> result;
            for (const auto& [k, spec] : w.jobs) before[k] = *s.job(JobKey{k});
            s.solve(Nanos::from_s(w.clock_s));
            std::pair<int64_t, int64_t> moved;
            for (const auto& [k, b] : before) {
                result[k] = place_of(s, k);
                if (result[k] && b.state != JobState::waiting && b.place.n != result[k])
                    (b.state == JobState::running ? moved.first : moved.second) += b.move_bytes;
            }
            const auto best = fewest_bytes(result, before, w.providers);
            ck_assert_msg(moved == best,
                          "seed %d step %d moves %ld bytes and thaws %ld, %ld and %ld would do",
                          static_cast<int>(seed), step, static_cast<long>(moved.first),
                          static_cast<long>(moved.second), static_cast<long>(best.first),
                          static_cast<long>(best.second));
        }
    }
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(allocator_changes, 120, decisions_never_cancel_and_a_second_solve_has_none,
                no_equal_allocation_moves_fewer_bytes);

}  // namespace souk::unit
