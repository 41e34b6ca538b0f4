// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, second part: the ends of effects, and what a restart finds. See guest.hpp.
#include <utility>

#include "agentd/core/guest.hpp"
#include "kernel/base/check.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

// The capsule, its dump and its image are as `found`; what was decided is finished, what was not is
// undone.
void Guest::recovered(GuestJob job, const Found& found, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::recovered, job.key, to_string(job.state)); });
    Entry& e = jobs_.insert_or_assign(job.key, Entry{}).first->second;
    e.job = std::move(job);
    switch (e.job.state) {
        case GuestState::exited:
        case GuestState::killed: return;
        case GuestState::frozen:
            // if what it was made of still stands
            if (!found.image_complete) return recovered_run(e, found, out);
            if (found.capsule_alive) end_capsule(e, Ending::to_frozen, What::kill_capsule, out);
            return;
        case GuestState::shipped: {
            // Held until its end: what killed it was told to, and the image is the job.
            const bool by_itself = found.exited && !ended_by_sigkill(found.wait_status);
            if (found.job_alive || by_itself || !found.image_complete)
                return recovered_run(e, found, out);
            e.job.state = GuestState::frozen;
            out.push_back(Persist{e.job});
            if (found.capsule_alive) end_capsule(e, Ending::to_frozen, What::kill_capsule, out);
            return;
        }
        default: return recovered_run(e, found, out);
    }
}

// What is, or was, to run here. `running` and `held` on disk mean: was told to run.
void Guest::recovered_run(Entry& e, const Found& found, Outputs& out) {
    const auto give_up = [&](const char* why) {
        e.why = why;
        if (std::exchange(e.job.state, GuestState::starting) != GuestState::starting)
            out.push_back(Persist{e.job});
        end_capsule(e, Ending::to_failed, What::kill_capsule, out);
    };
    const GuestState kept = e.job.state;
    if (kept == GuestState::frozen && !found.job_alive) return give_up("its image is incomplete");
    if (e.job.from_image && kept == GuestState::starting)
        return give_up("the daemon ended before the job was restored");
    if (kept == GuestState::filling)
        return give_up("the daemon ended before all of its memory had come");
    if (found.exited) {
        // CRIU kills what it restored when the daemon ends before it lets that run. (A job told to
        // run that got a SIGKILL of its own before the daemon knew that it runs cannot be told
        // apart; then it goes on from its image.)
        const bool by_criu = kept == GuestState::held && ended_by_sigkill(found.wait_status);
        if (by_criu) return give_up("the daemon ended while the job was restored");
        // it tells its end again, with how much the job has written: until then it runs
        if (found.capsule_alive) {
            e.shipped_kept = kept == GuestState::shipped;
            e.job.state = GuestState::running;
            return take_back_shipped(e, out);
        }
        e.job.state = GuestState::exited;
        e.job.wait_status = found.wait_status;
    } else if (found.job_alive) {
        e.shipped_kept = kept == GuestState::shipped;
        e.job.state = GuestState::running;
        if (!found.held_by_dump) {
            e.job.in_place = false;  // on disk as well with what is written next
            return take_back_shipped(e, out);
        }
        e.over = leased(e);  // nothing goes on before its home has answered
        if (found.lapsed) {
            take_back_shipped(e, out);
            return stand(e);
        }
        if (e.job.in_place) return stands_in_place(e);
        e.job.state = GuestState::dumping;
        e.dump = Entry::Dump::held;
        e.want = Want::keep;
        e.image_lost = !found.image_complete;
        e.why = "the daemon of its node ended during the dump";
    } else if (found.capsule_alive || kept == GuestState::starting) {
        give_up("the daemon ended before the job was started");
    } else {
        died(e, "its capsule is gone", out);
    }
}

void Guest::on(Entry& e, CapsuleReady, Outputs& out) {
    if (e.ending != Ending::none || e.job.state != GuestState::starting) return;
    if (e.job.kept) {
        e.job.state = GuestState::prepared;
        return tell(e, out);
    }
    if (e.job.from_image) {
        e.criu = Entry::Criu::coming;
        return effect(e, What::ready_criu, out);
    }
    e.start_waits = !may_begin(e);
    if (e.start_waits) return need_beat(e.job.key.id.home);
    start_now(e, out);
}

// On disk first: a capsule that is found dead later may have run the job.
void Guest::start_now(Entry& e, Outputs& out) const {
    keep_lease(e, out);
    e.starting_job = true;
    GuestJob told = e.job;
    told.state = GuestState::running;
    out.push_back(Persist{std::move(told)});
    effect(e, What::start_job, out);
}

void Guest::on(Entry& e, CapsuleFailed x, Outputs& out) {
    if (e.ending != Ending::none || e.job.state != GuestState::starting) return;
    e.why = std::move(x.why);
    failed(e, out);
}

void Guest::now_running(Entry& e, Outputs& out) const {
    e.job.state = GuestState::running;
    if (e.over && !e.early_exit && !e.gone) stand(e);
    tell(e, out);
    if (!e.stands) expel(e, out);
}

// It ran, and was ended from outside: nothing of it goes on.
void Guest::died(Entry& e, std::string why, Outputs& out) const {
    e.job.state = GuestState::killed;
    e.why = std::move(why);
    out.push_back(Persist{e.job});
    tell(e, out);
}

// A start or release has succeeded; what came before its end was known counts now.
void Guest::after_start(Entry& e, Outputs& out) const {
    now_running(e, out);
    if (e.early_exit) {
        e.job.state = GuestState::exited;
        e.job.wait_status = *e.early_exit;
        tell(e, out);
    } else if (e.gone) {
        died(e, "its capsule ended unexpectedly", out);
    }
}

void Guest::on(Entry& e, JobStarted, Outputs& out) {
    if (e.ending != Ending::none || !std::exchange(e.starting_job, false)) return;
    after_start(e, out);
}

void Guest::on(Entry& e, JobNotStarted x, Outputs& out) {
    if (e.ending != Ending::none || !std::exchange(e.starting_job, false)) return;
    e.why = std::move(x.why);
    e.error = x.error;
    e.program_error = x.program_error;
    out.push_back(Persist{e.job});  // `starting` again: it did not run
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, CriuReady, Outputs& out) {
    if (e.ending != Ending::none || e.criu != Entry::Criu::coming) return;
    e.criu = Entry::Criu::ready;
    if (e.job.state != GuestState::starting) return drive(e, out);
    e.job.state = GuestState::prepared;
    tell(e, out);
}

void Guest::on(Entry& e, CriuFailed x, Outputs& out) {
    if (e.ending != Ending::none || e.criu == Entry::Criu::none || e.dump > Entry::Dump::ahead)
        return;
    if (runs(e) || e.job.state == GuestState::exited)
        return want_failed(e, std::move(x.why), x.of_job, out);
    if (e.restoring || e.releasing) return;  // that ends by itself
    e.why = std::move(x.why);
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, SentAhead, Outputs& out) {
    if (e.ending != Ending::none || e.dump != Entry::Dump::ahead || !runs(e)) return;
    e.dump = Entry::Dump::making;
    out.push_back(Do{What::dump_for_move, e.job.key, {}, e.ship_dest, 0, false});
}

void Guest::on(Entry& e, DumpFroze x, Outputs& out) {
    if (e.dump != Entry::Dump::making || !runs(e)) return;
    e.forecast = x.forecast;
    e.job.state = GuestState::dumping;
    tell(e, out);
}

void Guest::on(Entry& e, DumpHeld x, Outputs& out) {
    if (e.ending != Ending::none || e.dump != Entry::Dump::making) return;
    e.dump = Entry::Dump::held;
    e.troubles = {};
    e.live = x.live;
    e.firm = x.firm;
    if (!runs(e)) return;
    e.job.state = GuestState::dumping;
    e.job.image_bytes = x.image_bytes;
    if (e.kill_asked) return drive(e, out);
    // the image is the job, and on disk before what ran is killed
    if (e.to_disk && e.want == Want::freeze) {
        e.job.state = GuestState::frozen;
        e.job.lapsed = e.lapsing;
        out.push_back(Persist{e.job});
        return end_capsule(e, Ending::to_frozen, What::finish_dump, out);
    }
    if (e.to_keep && e.want == Want::save) {  // all that was wanted is in the image
        e.want = Want::run;
        e.save = Entry::Save::made;
        return undo(e, out, What::go_on);
    }
    if (!e.to_disk && !e.to_keep && e.want == Want::ship) {
        ship_now(e, out);
        return e.firm ? tell(e, out) : void();
    }
    if (e.want == Want::ship) return undo(e, out);  // to the wrong place: again
    drive(e, out);
}

void Guest::on(Entry& e, DumpFailed x, Outputs& out) {
    if (e.ending != Ending::none || e.dump == Entry::Dump::none) return;
    const bool wanted = e.want == Want::ship || e.want == Want::freeze || e.want == Want::save ||
                        e.want == Want::run;
    if (wanted || e.kill_asked || !runs(e)) return want_failed(e, std::move(x.why), x.of_job, out);
    e.criu = Entry::Criu::none;  // given up already, and something else is wanted
    e.dump = Entry::Dump::none;
    e.firm = false;
    take_back_shipped(e, out);
    e.job.state = GuestState::running;
    drive(e, out);
}

void Guest::on(Entry& e, DumpUndone, Outputs& out) {
    if (!std::exchange(e.undoing, false) || e.ending != Ending::none || !runs(e)) return;
    e.job.state = GuestState::running;
    if (e.want != Want::run || e.kill_asked) {
        drop_checkpoint(e, out);
        return drive(e, out);
    }
    if (e.save == Entry::Save::made) {
        e.save = Entry::Save::sending;
        out.push_back(Do{What::send_checkpoint, e.job.key, e.save_epoch, e.save_dest, 0, false});
    }
    now_running(e, out);
}

void Guest::on(Entry& e, CheckpointSent, Outputs& out) {
    if (e.save == Entry::Save::sending) drop_checkpoint(e, out);
}

void Guest::on(Entry& e, CheckpointFailed x, Outputs& out) {
    if (e.save != Entry::Save::sending) return;
    drop_checkpoint(e, out);
    if (e.job.state != GuestState::running || e.ending != Ending::none) return;
    e.why = std::move(x.why);
    tell(e, out);
    e.why.clear();
}

// The end of one transfer; true if a newer one follows at once and nothing is to be told.
bool Guest::ship_ended(Entry& e, Outputs& out) const {
    e.shipping = false;
    if (e.ending != Ending::none) return true;
    if (!e.ship_again) return false;
    ship_now(e, out);
    return true;
}

void Guest::on(Entry& e, Shipped, Outputs& out) {
    if (!e.shipping || ship_ended(e, out) || !runs(e)) return;
    e.job.state = GuestState::shipped;
    if (!e.live) {
        e.shipped_kept = true;
        out.push_back(Persist{e.job, Durable::soon});
    }
    tell(e, out);
}

void Guest::on(Entry& e, ShipFailed x, Outputs& out) {
    if (!e.shipping || ship_ended(e, out)) return;
    if (e.retained) return;  // the destination fails too, and that counts
    e.why = std::move(x.why);
    tell(e, out);  // dumping or frozen, with a reason: the home node gives the move up
    if (!runs(e)) e.why.clear();
}

void Guest::on(Entry& e, ImageReceived x, Outputs& out) {
    if (!expects_image(e.job.key)) return;
    if (e.job.kept) {
        e.job.state = GuestState::frozen;
        e.job.image_bytes = x.image_bytes;
        out.push_back(Persist{e.job});
        return tell(e, out);
    }
    e.whole = x.form != MoveForm::post_copy;
    e.restoring = true;
    e.job.state = GuestState::starting;
    e.job.image_bytes = x.image_bytes;
    effect(e, What::restore, out);
}

void Guest::on(Entry& e, ImageFailed x, Outputs& out) {
    if (!expects_image(e.job.key)) return;
    e.why = std::move(x.why);
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, PagesWhole, Outputs& out) {
    if (e.ending != Ending::none || std::exchange(e.whole, true)) return;
    if (e.releasing) {  // on disk as any other that was told to run
        out.push_back(Persist{e.job});
    } else if (e.job.state == GuestState::filling) {
        e.job.state = GuestState::running;
        out.push_back(Persist{e.job});
        after_start(e, out);
    }
}

// The copy cannot go on, and was not the job yet.
void Guest::on(Entry& e, PagesLost x, Outputs& out) {
    if (e.ending != Ending::none || !e.job.from_image || runs(e)) return;
    if (e.whole && !e.restoring) return;
    e.restoring = e.releasing = false;
    e.why = std::move(x.why);
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, RestoreHeld, Outputs& out) {
    if (!e.restoring || e.ending != Ending::none) return;
    e.restoring = false;
    e.job.state = GuestState::held;
    tell(e, out);
}

void Guest::on(Entry& e, RestoreFailed x, Outputs& out) {
    if (e.ending != Ending::none) return;
    // Also one that stands held: without CRIU it can never run.
    if (!e.restoring && !e.releasing && e.job.state != GuestState::held) return;
    e.restoring = e.releasing = false;
    e.why = std::move(x.why);
    e.job.state = GuestState::starting;  // on disk as well: it did not run
    out.push_back(Persist{e.job});
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, RestoreRunning, Outputs& out) {
    if (e.ending != Ending::none || !std::exchange(e.releasing, false)) return;
    e.criu = Entry::Criu::none;
    if (!e.whole) {
        e.job.state = GuestState::filling;
        if (e.over) return on(e, Lapsed{}, out);
        return tell(e, out);
    }
    e.job.state = GuestState::running;
    out.push_back(Persist{e.job, Durable::soon});  // `held` says as much
    after_start(e, out);
}

void Guest::on(Entry& e, CapsuleGone, Outputs& out) {
    const std::string why = e.why.empty() ? "its capsule ended unexpectedly" : e.why;
    switch (std::exchange(e.ending, Ending::none)) {
        case Ending::to_frozen:
            e.criu = Entry::Criu::none;
            e.dump = Entry::Dump::none;
            e.shipping = false;
            e.why.clear();
            return tell(e, out);
        case Ending::to_killed:
            e.job.state = e.early_exit ? GuestState::exited : GuestState::killed;
            e.job.wait_status = e.early_exit.value_or(0);
            out.push_back(Persist{e.job});
            return tell(e, out);
        case Ending::to_dropped: {
            const GuestKey key = e.job.key;
            erase(key, out);
            return tell_unknown(key, out);
        }
        case Ending::none:
            if (e.job.state == GuestState::exited || e.job.state == GuestState::frozen ||
                e.job.state == GuestState::killed || e.job.state == GuestState::failed)
                return;
            if (runs(e) && as_its_image(e)) {
                e.job.state = GuestState::frozen;
                out.push_back(Persist{e.job});
                e.criu = Entry::Criu::none;
                e.dump = Entry::Dump::none;
                e.firm = e.shipping = e.shipped_kept = false;
                e.why.clear();
                return tell(e, out);
            }
            if (runs(e)) return died(e, why, out);
            if (e.starting_job || e.releasing) {  // did it run? The end of that effect tells
                e.gone = true;
                return;
            }
            [[fallthrough]];
        case Ending::to_failed: e.why = why; return failed(e, out);
    }
}

// PID 1 has reaped the job's root. While a restore is under way that is CRIU's own kill, and the
// restore's end tells.
void Guest::on(Entry& e, Exited x, Outputs& out) {
    if (e.ending != Ending::none) {  // it may have ended by itself just before it was killed
        const bool ran = runs(e) || e.starting_job;
        if (e.ending == Ending::to_killed && ran && !ended_by_sigkill(x.wait_status))
            e.early_exit = x.wait_status;
    } else if (e.starting_job || e.releasing || e.job.state == GuestState::filling) {
        e.early_exit = x.wait_status;
        e.why = std::move(x.why);
    } else if (runs(e)) {
        e.job.state = GuestState::exited;
        e.job.wait_status = x.wait_status;
        e.why = std::move(x.why);
        tell(e, out);
    }
}

void Guest::on(Entry& e, Movable x, Outputs& out) {
    if (e.looked == x.why_not) return;
    e.looked = std::move(x.why_not);
    owner_due_ = {};
    if (e.job.state == GuestState::running && e.ending == Ending::none) tell(e, out);
}

void Guest::on(Entry& e, Stopped x, Outputs& out) {
    if (e.stopped == x.is_stopped) return;
    e.stopped = x.is_stopped;
    if (e.job.state == GuestState::running) tell(e, out);
}

}  // namespace souk
