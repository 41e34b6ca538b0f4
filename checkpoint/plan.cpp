// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/plan.hpp"

#include <algorithm>

namespace souk {
namespace {
Nanos span(double ns) { return Nanos{static_cast<int64_t>(ns)}; }
}  // namespace

MovePlan plan_move(const MoveFacts& f) {
    const double link = f.link_bytes_per_s > 0 ? f.link_bytes_per_s : move_cost::default_link_bytes_per_s;
    const auto bytes = static_cast<double>(f.memory_bytes);
    const double sending = bytes / link * 1e9;
    const int64_t more_processes = std::max(f.processes - 1, 0), more_threads = std::max(f.threads - f.processes, 0);
    const Nanos objects = move_cost::base + Nanos{move_cost::per_process.ns * more_processes} + Nanos{move_cost::per_thread.ns * more_threads};
    const Nanos copied = objects + span(bytes * move_cost::image_ns_per_byte + sending);
    const double table = static_cast<double>(f.reserved_bytes) * move_cost::lazy_table_bytes_per_byte;
    const Nanos mapped = objects + span(bytes * move_cost::lazy_ns_per_byte + table * move_cost::lazy_ns_per_table_byte);
    const Nanos whole = mapped + span(sending);
    if (!f.pages_possible) return {{MoveForm::stop_and_copy, copied, copied}, "pages cannot be sent by themselves here"};
    if (f.memory_bytes < pages_from_bytes) return {{MoveForm::stop_and_copy, copied, copied}, "it is small"};
    const bool may_run_early = f.post_copy_possible && f.policy != MovePolicy::safe;
    if (copied <= (may_run_early ? mapped : whole)) return {{MoveForm::stop_and_copy, copied, copied}, "it reserves much more than it uses"};
    if (f.policy == MovePolicy::safe) return {{MoveForm::pages_first, whole, whole}, "as its owner wants it"};
    if (!f.post_copy_possible) return {{MoveForm::pages_first, whole, whole}, "its capsule cannot keep its memory's faults"};
    if (f.policy == MovePolicy::fast) return {{MoveForm::post_copy, mapped, whole}, "as its owner wants it"};
    if (f.own_network) return {{MoveForm::pages_first, whole, whole}, "what it tells others could not be taken back"};
    if (whole > pause_worth_post_copy) return {{MoveForm::post_copy, mapped, whole}, "its memory would take too long"};
    return {{MoveForm::pages_first, whole, whole}, "its memory comes quickly"};
}

uint64_t dump_room_bytes(const MoveFacts& f, MoveForm form) {
    if (form == MoveForm::stop_and_copy) return f.memory_bytes;
    return static_cast<uint64_t>(static_cast<double>(f.reserved_bytes) * move_cost::lazy_table_bytes_per_byte);
}

}  // namespace souk
