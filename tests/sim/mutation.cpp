// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/mutation.hpp"

#include <cstddef>

namespace souk::sim {

const char* mutation_name(Mutation m) {
    static const char* const names[] = {"none",
                                        "skip_commit_persist",
                                        "skip_frozen_persist",
                                        "send_before_persist",
                                        "reuse_epoch",
                                        "release_with_commit",
                                        "read_old_connection",
                                        "undelivered_after_send",
                                        "thaw_on_restart",
                                        "lose_exit_status",
                                        "restore_does_not_hold",
                                        "half_image_is_whole",
                                        "killed_too_early",
                                        "retained_is_killed",
                                        "filling_is_running",
                                        "lost_pages_unseen",
                                        "skip_receipt",
                                        "torn_ledger_commit",
                                        "bill_frozen_time",
                                        "half_checkpoint_is_whole",
                                        "checkpoint_dropped_early",
                                        "lost_too_early",
                                        "forget_checkpoint",
                                        "deadline_unwatched",
                                        "longer_lease",
                                        "thaw_past_lease",
                                        "fenced_goes_on",
                                        "any_source_is_fenced",
                                        "told_before_it_runs",
                                        "stands_untrue",
                                        "full_disk_lies",
                                        "disk_forgets",
                                        "tickets_unchecked",
                                        "ticket_mark_lost",
                                        "hold_does_not_hold",
                                        "share_forgotten",
                                        "share_not_held",
                                        "owner_not_lowered",
                                        "paused_runs",
                                        "paused_for_ever",
                                        "promise_unwatched",
                                        "empty_too_early",
                                        "image_dropped_early",
                                        "leaves_unpaced",
                                        "pace_never_raised",
                                        "memory_not_wanted",
                                        "cut_does_not_hold",
                                        "anybody_commands",
                                        "heard_from_anybody",
                                        "place_forgotten",
                                        "broken_unsaid",
                                        "sold_twice"};
    return names[static_cast<size_t>(m)];
}

}  // namespace souk::sim
