// SPDX-License-Identifier: GPL-2.0-or-later
// MovePlan: in which form a job moves, and what that should cost. Pure; facts in, plan out, so that
// what was predicted can be laid beside what was measured.
//
//   stop_and_copy  dump with all memory, send the image, restore: the least work for a small job
//   pages_first    dump without private memory; that goes straight out of the frozen job into the
//                  restored one, which runs when all of it is there: no copy of it on disk or in an
//                  image, and the job exists whole on one side at any time
//   post_copy      the same, but the restored job runs at once and waits for what it touches
//
// Where the kernel tells which pages are written to, a job's memory may go before it is stopped
// (pre-copy): in rounds, as long as each leaves clearly less to send than the one before; then one
// of the last two forms brings the rest, and the pages that came ahead are put in place where they
// lie.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernel/base/move.hpp"

namespace souk {

// These figures describe what was sent while the job ran.
struct PrecopyFacts {
    uint64_t bytes = 0;       // in all rounds
    Nanos took;               // for all
    uint64_t left_bytes = 0;  // by the last look
    double link_bytes_per_s = 0;
    int rounds = 0;
    uint64_t dirty_bytes_per_s = 0;
};

// Earlier rounds have shown how fast a job writes to memory that it had left alone, and how much
// memory it writes to all the time.
struct DirtyFacts {
    uint64_t bytes_per_s = 0;  // distinct bytes, while the first round went
    uint64_t left_bytes = 0;   // however many rounds there were
};

struct MoveFacts {
    uint64_t memory_bytes = 0;  // resident, of all processes, what several of them share once
    uint64_t shared_bytes = 0;  // of it, what several share copy-on-write: it goes with the image
    // what CRIU would write: what several share for each of them; less than memory_bytes: the same
    uint64_t image_bytes = 0;
    uint64_t reserved_bytes = 0;  // address space, of all processes
    int processes = 1;
    int threads = 1;                  // of all processes
    double link_bytes_per_s = 0;      // what the last transfers to that node made; 0: not known
    bool pages_possible = false;      // userfaultfd, big pipes and a freezer on both ends
    bool post_copy_possible = false;  // and its capsule keeps the userfaultfds if its daemon ends
    bool precopy_possible = false;    // and the kernel here tells what is written to
    bool own_network = false;         // others talk to it
    MovePolicy policy = MovePolicy::automatic;
    std::optional<DirtyFacts> dirty;  // of an earlier move of this job
    std::optional<PrecopyFacts> precopy;
};

struct MovePlan {
    MoveForecast forecast;
    std::string why;  // of the form, in a few words
    // memory is worth sending while it runs, before this form; false once that is over
    bool precopy = false;
};

// Costs of a step on an idle machine of 2025 with CRIU 4.2, measured; the link is what differs
// between sites.
namespace move_cost {
inline constexpr Nanos base = Nanos::from_us(13'000);        // dump and restore of a small process
inline constexpr Nanos per_process = Nanos::from_us(3'100);  // each further one
inline constexpr Nanos per_thread = Nanos::from_us(450);
inline constexpr double lazy_ns_per_byte = 0.065;  // mapping memory without copying it
// CRIU's lazy dump fills a table with 16 bytes for each page of address space, touched or not
// (criu/mem.c, the copy of pp->nr_iovs): 5 s and 4 GB of memory per TB, as programs of Java, of Go
// or with AddressSanitizer reserve it.
inline constexpr double lazy_table_bytes_per_byte = 16.0 / 4096;
inline constexpr double lazy_ns_per_table_byte = 1.2;
// dump, digest and restore of memory by image
inline constexpr double image_ns_per_byte = 1.0;
// what came ahead, from memory into the job
inline constexpr double place_ns_per_byte = 0.35;
inline constexpr double look_ns_per_byte = 0.006;          // which of its pages were written to
inline constexpr double default_link_bytes_per_s = 1.5e9;  // loopback
}  // namespace move_cost

inline constexpr uint64_t pages_from_bytes = 6 << 20;  // less goes with the image
inline constexpr Nanos pause_worth_post_copy = Nanos::from_ms(100);
// Pre-copy must save so much of a pause; saving less is not worth sending pages twice.
inline constexpr Nanos precopy_saves_min = Nanos::from_ms(10);
inline constexpr uint64_t precopy_bytes_max = uint64_t{64} << 30;  // 16 bytes of account a page
// Rounds are expected to leave this part of a job's memory.
inline constexpr double precopy_left_share = 1.0 / 16;
// Memory that takes no longer to send may wait for the stop.
inline constexpr Nanos precopy_left_goal = Nanos::from_ms(5);
// A round must leave at most this part of what was left before; otherwise rounds do not help.
inline constexpr double precopy_falls_to = 0.75;
inline constexpr int precopy_rounds_max = 10;
inline constexpr uint64_t precopy_sends_max = 4;  // times its memory
// for all rounds; for the first, by the link's rate
inline constexpr Nanos precopy_time_max = Nanos::from_s(120);
inline constexpr Nanos dirty_rate_age_max = Nanos::from_s(600);  // a job changes what it does

MovePlan plan_move(const MoveFacts& facts);

// Address space that is not memory has to be looked at as well, so more than this is no job for
// rounds.
constexpr uint64_t precopy_reserved_max(uint64_t memory_bytes) {
    return 16 * memory_bytes + (uint64_t{1} << 30);
}
// another_round() tells from this, after a look at the job, whether another round is worth it.
struct RoundFacts {
    int rounds = 0;  // that are over
    uint64_t memory_bytes = 0;
    uint64_t sent_bytes = 0;         // in all of them
    uint64_t left_before = 0;        // to be sent in the last of them
    uint64_t left_bytes = 0;         // now
    Nanos took;                      // for all of them
    uint64_t dirty_bytes_per_s = 0;  // while the first of them went
};
bool another_round(const RoundFacts& facts);
// Returns the distinct bytes that are written to in a second, if `bytes` were written to `within`
// that time.
uint64_t dirty_rate(uint64_t bytes, Nanos within);
// Estimates how much of that memory is left to send when the job stops, after the rounds.
uint64_t expected_left(uint64_t memory_bytes, double link_bytes_per_s, const DirtyFacts& dirty);
// Memory that the dump takes in the directory for images, or beside it. What is shared goes there
// in any form.
uint64_t dump_room_bytes(const MoveFacts& facts, MoveForm form);

}  // namespace souk
