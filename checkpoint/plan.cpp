// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/plan.hpp"

#include <algorithm>
#include <utility>

namespace souk {
namespace {
Nanos span(double ns) { return Nanos{static_cast<int64_t>(ns)}; }
MovePlan planned(MoveForm form, Nanos pause, Nanos total, const char* why, bool precopy = false) {
    MovePlan plan;
    plan.forecast.form = form;
    plan.forecast.pause = pause;
    plan.forecast.total = total;
    plan.why = why;
    plan.precopy = precopy;
    return plan;
}
}  // namespace

bool another_round(const RoundFacts& f) {
    if (f.left_bytes == 0) return false;
    if (f.rounds == 0) return true;
    if (f.rounds >= precopy_rounds_max || f.took >= precopy_time_max) return false;
    if (f.sent_bytes + f.left_bytes > precopy_sends_max * f.memory_bytes) return false;
    if (static_cast<double>(f.left_bytes) > static_cast<double>(f.left_before) * precopy_falls_to)
        return false;
    // Reckons with the rate that the rounds had.
    const double ns = static_cast<double>(f.took.ns) * static_cast<double>(f.left_bytes) /
                      static_cast<double>(std::max<uint64_t>(f.sent_bytes, 1));
    return span(ns) > precopy_left_goal;
}

uint64_t dirty_rate(uint64_t bytes, Nanos within) {
    if (within.ns <= 0) return 0;
    return static_cast<uint64_t>(static_cast<double>(bytes) / static_cast<double>(within.ns) * 1e9);
}

// Reckons as another_round() does: while some memory is sent, so much is written to anew.
uint64_t expected_left(uint64_t memory_bytes, double link_bytes_per_s, const DirtyFacts& dirty) {
    const auto memory = static_cast<double>(memory_bytes);
    const double falls = static_cast<double>(dirty.bytes_per_s) / link_bytes_per_s;
    const double goal = link_bytes_per_s * precopy_left_goal.seconds();
    double left = memory;
    for (int round = 0; round < precopy_rounds_max; ++round) {
        const double before = std::exchange(left, std::min(memory, left * falls));
        if (left <= goal || left > before * precopy_falls_to) break;
    }
    return std::min(memory_bytes, std::max(static_cast<uint64_t>(left), dirty.left_bytes));
}

namespace {

// Plans a move in which no memory goes before the job stops: all of it goes before the job runs
// again, or after.
MovePlan plan_at_once(const MoveFacts& f, Nanos mapped, Nanos whole) {
    if (f.policy == MovePolicy::safe)
        return planned(MoveForm::pages_first, whole, whole, "as its owner wants it");
    if (!f.post_copy_possible)
        return planned(MoveForm::pages_first, whole, whole,
                       "its capsule cannot keep its memory's faults");
    if (f.policy == MovePolicy::fast)
        return planned(MoveForm::post_copy, mapped, whole, "as its owner wants it");
    if (f.own_network)
        return planned(MoveForm::pages_first, whole, whole,
                       "what it tells others could not be taken back");
    if (whole > pause_worth_post_copy)
        return planned(MoveForm::post_copy, mapped, whole, "its memory would take too long");
    return planned(MoveForm::pages_first, whole, whole, "its memory comes quickly");
}

}  // namespace

MovePlan plan_move(const MoveFacts& f) {
    const double link =
        f.link_bytes_per_s > 0 ? f.link_bytes_per_s : move_cost::default_link_bytes_per_s;
    const uint64_t image_bytes = std::max(f.image_bytes, f.memory_bytes);
    const uint64_t shared_bytes = std::min(f.shared_bytes, f.memory_bytes),
                   lazy_bytes = f.memory_bytes - shared_bytes;
    const auto image = static_cast<double>(image_bytes), shared = static_cast<double>(shared_bytes);
    const auto bytes = static_cast<double>(lazy_bytes);  // what goes past the image, where it may
    const double sending = bytes / link * 1e9;
    const int64_t more_processes = std::max(f.processes - 1, 0),
                  more_threads = std::max(f.threads - f.processes, 0);
    const Nanos objects = move_cost::base + Nanos{move_cost::per_process.ns * more_processes} +
                          Nanos{move_cost::per_thread.ns * more_threads};
    const double image_ns_per_byte = move_cost::image_ns_per_byte + 1e9 / link;
    const Nanos copied = objects + span(image * image_ns_per_byte);
    const double table =
        static_cast<double>(f.reserved_bytes) * move_cost::lazy_table_bytes_per_byte;
    const Nanos mapped =
        objects + span(shared * image_ns_per_byte + bytes * move_cost::lazy_ns_per_byte +
                       table * move_cost::lazy_ns_per_table_byte);
    const Nanos whole = mapped + span(sending);
    // With memory sent ahead, the job is looked at, the rest is brought, and all is put in place.
    const double left = f.precopy ? static_cast<double>(f.precopy->left_bytes)
                        : f.dirty ? static_cast<double>(expected_left(lazy_bytes, link, *f.dirty))
                                  : bytes * precopy_left_share;
    const double precopy_link =
        f.precopy && f.precopy->link_bytes_per_s > 0 ? f.precopy->link_bytes_per_s : link;
    const Nanos looked = mapped + span(bytes * move_cost::look_ns_per_byte);
    const Nanos placed =
        looked + span(bytes * move_cost::place_ns_per_byte + left / precopy_link * 1e9);
    const bool early = f.post_copy_possible && f.policy != MovePolicy::safe && !f.own_network;
    const auto after_rounds = [&](Nanos took, bool to_come) -> MovePlan {
        if (early && placed > pause_worth_post_copy)
            return planned(MoveForm::post_copy, looked, placed + took, "its memory went ahead",
                           to_come);
        return planned(MoveForm::pages_first, placed, placed + took, "its memory went ahead",
                       to_come);
    };
    if (!f.pages_possible)
        return planned(MoveForm::stop_and_copy, copied, copied,
                       "pages cannot be sent by themselves here");
    if (image_bytes < pages_from_bytes)
        return planned(MoveForm::stop_and_copy, copied, copied, "it is small");
    if (f.precopy) {
        MovePlan plan = after_rounds(f.precopy->took, false);
        plan.forecast.precopy_bytes = f.precopy->bytes;
        plan.forecast.precopy_time = f.precopy->took;
        plan.forecast.precopy_rounds = static_cast<uint32_t>(f.precopy->rounds);
        plan.forecast.left_bytes = f.precopy->left_bytes;
        plan.forecast.dirty_bytes_per_s = f.precopy->dirty_bytes_per_s;
        return plan;
    }
    const bool may_run_early = f.post_copy_possible && f.policy != MovePolicy::safe;
    if (copied <= (may_run_early ? mapped : whole))
        return planned(MoveForm::stop_and_copy, copied, copied,
                       "it reserves much more than it uses");
    const bool worth = placed + precopy_saves_min <= whole && span(sending) <= precopy_time_max;
    if (f.precopy_possible && f.policy != MovePolicy::fast && f.memory_bytes <= precopy_bytes_max &&
        worth)
        return after_rounds(span(sending), true);
    return plan_at_once(f, mapped, whole);
}

uint64_t dump_room_bytes(const MoveFacts& f, MoveForm form) {
    if (form == MoveForm::stop_and_copy) return std::max(f.image_bytes, f.memory_bytes);
    const double table =
        static_cast<double>(f.reserved_bytes) * move_cost::lazy_table_bytes_per_byte;
    return static_cast<uint64_t>(table) + f.shared_bytes;
}

}  // namespace souk
