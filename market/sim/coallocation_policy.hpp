// SPDX-License-Identifier: GPL-2.0-or-later
// Policy: which jobs of the one queue start now. Pure: it sees the processors that are idle, what
// holds the others and until when by its estimate, and says what to do. One for each run.
// SOUK_POLICIES in the .cpp is the table of them.
//   fcfs                nobody starts before a job that came earlier
//   fpfs                fit processors first served: the first in the queue that fits, again and
//                       again; a large job can starve
//   bounded_overtaking  fpfs, but nobody passes a job that was passed `overtakes_max` times
//   easy                the first job that does not fit has a reservation, the earliest by the
//                       estimates; a later job starts if it does not delay that
//   conservative        each of the first `depth` jobs has a reservation, made when it comes among
//                       them; a later job starts if it delays none. Each event lets each
//                       reservation, in order of the queue, become an earlier one
// A reservation holds places as well as a time. Where others than the jobs of the queue take
// processors (background), one may be lost; it is then made anew.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "market/sim/coallocation_placement.hpp"

namespace souk::sim::coallocation {

// The state of a job, as its policy sees it.
struct Progress {
    enum class State : uint8_t { coming, waiting, running, frozen, done };
    State state = State::coming;
    Allocation where;          // running
    int64_t until_ms = 0;      // running: its end by its estimate, later than now
    int64_t left_ms = 0;       // of its estimate, inside one cluster
    int64_t came_ms = 0;       // into the queue
    int64_t still_ms = 0;      // it has waited or lain frozen so long
    int64_t thaw_from_ms = 0;  // frozen: when its freeze ends
};

// Processors that are held until then.
struct Holding {
    int64_t until_ms;
    Allocation where;
};

struct View {
    int64_t now_ms = 0;
    std::span<const Job> jobs;
    std::span<const Progress> progress;  // by job
    std::span<const uint32_t> queue;     // who waits or lies frozen, by arrival
    std::span<const uint32_t> running;
    std::span<const int64_t> idle;        // by cluster
    std::span<const Holding> background;  // others' jobs that run; nobody moves them
    const Terms* terms = nullptr;
};

// A job that waits starts there, a frozen one is thawed there, a running one is moved there; with
// an empty place it is frozen. All orders of an answer are done at one instant.
struct Order {
    uint32_t job;
    Allocation where;
};

class Policy {
  public:
    virtual ~Policy() = default;
    virtual std::vector<Order> act(const View& view) = 0;
    // The policy is called at this moment even if nothing has happened by then.
    virtual std::optional<int64_t> wake_ms() const { return std::nullopt; }
    // The policy has promised that the job starts at this moment at the latest; nullopt if it has
    // promised nothing.
    virtual std::optional<int64_t> promised_ms(uint32_t /*job*/) const { return std::nullopt; }
};

struct PolicyOptions {
    uint32_t overtakes_max = 20;
    uint32_t depth = 50;
};

struct PolicyEntry {
    std::string_view name;
    std::unique_ptr<Policy> (*make)(const Placement& placement, const PolicyOptions& options);
};
std::span<const PolicyEntry> policies();
// Null if there is no such policy. The placement must outlive it.
std::unique_ptr<Policy> make_policy(std::string_view name, const Placement& placement,
                                    const PolicyOptions& options);

}  // namespace souk::sim::coallocation
