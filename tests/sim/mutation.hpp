// SPDX-License-Identifier: GPL-2.0-or-later
// Deliberate bugs of the simulated cluster (cluster.hpp). They sit in the shell and the world,
// never in the machines; each must be found.
#pragma once

#include <cstdint>

namespace souk::sim {

enum class Mutation : uint8_t {
    none = 0,
    skip_commit_persist,  // the decision of a move is not written
    skip_frozen_persist,  // the guest's "the image is the job" is not written
    send_before_persist,  // messages leave before their step is durable
    reuse_epoch,          // the newest epoch is forgotten in a crash
    release_with_commit,  // the candidate runs before the source is dead
    // commands of a connection that was replaced are still carried out, late
    read_old_connection,
    undelivered_after_send,    // "it never left" said of a command that did
    thaw_on_restart,           // a daemon that starts lets every frozen job go on
    lose_exit_status,          // the record of PID 1 is not read after a restart
    restore_does_not_hold,     // CRIU refused at the wrong hook: the restored job runs at once
    half_image_is_whole,       // a transfer that was cut counts as complete
    killed_too_early,          // a capsule is called gone while its processes live
    retained_is_killed,        // the source dies at the commit, and its memory is nowhere else yet
    filling_is_running,        // a restarted daemon takes a copy that lacks memory for the job
    lost_pages_unseen,         // a copy whose memory will not come goes on
    skip_receipt,              // one in ten is not written
    torn_ledger_commit,        // the market dies after a job's record and before its receipt
    bill_frozen_time,          // the clock of a job goes on while it is frozen
    half_checkpoint_is_whole,  // a checkpoint of which a part has come counts
    checkpoint_dropped_early,  // the last one goes before the next is whole
    lost_too_early,            // a node is called lost while it lives
    forget_checkpoint,         // a job's last checkpoint is not in its record
    deadline_unwatched,        // PID 1 lets a job run past its lease
    longer_lease,              // a guest is told a longer lease than its home counts
    thaw_past_lease,           // what is thawed after its deadline runs
    fenced_goes_on,        // a source that only its home lets go on goes on when its daemon dies
    any_source_is_fenced,  // its home takes each held source for such a one
    told_before_it_runs,   // that a restored job runs is told, and CRIU fails then
    stands_untrue,         // a job is said to be stopped where it is, and runs
    full_disk_lies,        // a full disk says that it has taken a commit
    disk_forgets,          // a crash takes the newest commit back
    tickets_unchecked,     // a guest asks for no ticket
    ticket_mark_lost,      // which tickets a guest has seen is forgotten in a crash
    hold_does_not_hold,    // a component runs as soon as it is started
    share_forgotten,       // a daemon that starts offers all, whatever its owner has said
    share_not_held,        // guests keep all CPUs while the owner is here who keeps a part of them
    owner_not_lowered,     // guests are called lowered when the owner comes, and are not
    paused_runs,           // a guest is called stopped for the owner, and runs
    paused_for_ever,       // what was stopped for the owner does not go on when he leaves
    promise_unwatched,     // nobody looks when a promise to the owner ends
    empty_too_early,       // a node with images of guests is called empty
    image_dropped_early,   // an image on its way to its home is dropped before that has it
    leaves_unpaced,        // what leaves for the owner goes as fast as it can
    pace_never_raised,     // it goes at his rate, whatever he was promised
    memory_not_wanted,     // a guest whose memory he wants is not told
    cut_does_not_hold,     // what is dumped with its gang goes on before its home has decided
    anybody_commands,      // a guest takes a liar for the home of which he speaks
    heard_from_anybody,    // a home takes a liar for the node of which he speaks
    place_forgotten,       // orders of jobs that booked a place do not leave when it begins
    broken_unsaid,         // no receipt says that a promised deadline was missed
    sold_twice,            // the market is told of twice the CPUs
    count_
};
const char* mutation_name(Mutation m);

}  // namespace souk::sim
