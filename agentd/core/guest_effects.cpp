// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, second part: the ends of effects, and what a restart finds. See guest.hpp.
#include <utility>

#include "agentd/core/guest.hpp"
#include "kernel/base/check.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

// The capsule, its dump and its image are as `found`; what was decided is finished, what was not is undone.
void Guest::recovered(GuestJob job, const Found& found, Outputs& out) {
    const GuestKey key = job.key;
    Entry& e = jobs_.insert_or_assign(key, Entry{}).first->second;
    e.job = std::move(job);
    const auto give_up = [&](const char* why) {
        e.why = why;
        e.job.state = GuestState::failed;
        end_capsule(e, Ending::to_failed, What::kill_capsule, out);
    };
    switch (e.job.state) {
        case GuestState::frozen:
            if (!found.image_complete) return give_up("its image is incomplete");
            if (found.capsule_alive) return end_capsule(e, Ending::to_frozen, What::kill_capsule, out);
            return;
        case GuestState::exited:
        case GuestState::killed: return;
        case GuestState::held:  // was told to run; a SIGKILL then is CRIU's own, undone with its agent
            if (found.exited && (found.wait_status & 0x7f) == 9) return give_up("the daemon ended while the job was restored");
            break;
        default:
            if (e.job.from_image && e.job.state != GuestState::running)
                return give_up("the daemon ended before the job was restored");
            break;
    }
    if (found.exited) {
        e.job.state = GuestState::exited;
        e.job.wait_status = found.wait_status;
    } else if (found.job_alive) {
        e.job.state = GuestState::running;
        if (!found.held_by_dump) return;
        // Frozen by a dump whose agent died: only the home node knows whether it was decided.
        e.job.state = GuestState::dumping;
        e.dump = Entry::Dump::held;
        if (!found.image_complete) e.job.image_bytes = 0;
        e.why = "the daemon of its node ended during the dump";
    } else {
        give_up(e.job.state == GuestState::starting ? "the daemon ended before the job was started" : "its capsule is gone");
    }
}

void Guest::capsule_ready(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none) return;
    if (e->job.from_image)
        want_criu(*e, out);
    else
        effect(*e, What::start_job, out);
}

void Guest::capsule_failed(const GuestKey& key, std::string why, Outputs& out) {
    if (!entry(key)) return;
    erase(key, out);
    tell_absent(key, GuestState::failed, why, out);
}

void Guest::now_running(Entry& e, Outputs& out) const {
    e.job.state = GuestState::running;
    tell(e, out);
    if (!accepting_) out.push_back(ToHome{e.job.key.id.home, Expel{e.job.key.id, e.job.key.epoch}});
}

void Guest::job_started(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (e && e->ending == Ending::none && e->job.state == GuestState::starting) now_running(*e, out);
}

void Guest::job_not_started(const GuestKey& key, int32_t error, bool program_error, std::string why, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none) return;
    tell_absent(key, GuestState::failed, why, out, error, program_error);
    e->why = std::move(why);
    end_capsule(*e, Ending::to_dropped, What::kill_capsule, out);
}

void Guest::criu_ready(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none || e->criu != Entry::Criu::coming || e->undoing) return;
    e->criu = Entry::Criu::ready;
    if (e->job.state == GuestState::starting && e->job.from_image)
        e->job.state = GuestState::prepared;
    else if (e->job.state == GuestState::running && e->to_disk)
        return begin_dump(*e, out);
    else if (e->job.state == GuestState::running)
        e->job.state = GuestState::dump_ready;
    tell(*e, out);
}

void Guest::criu_failed(const GuestKey& key, std::string why, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none) return;
    if (e->dump != Entry::Dump::none) return;  // a dump under way ends by itself
    e->criu = Entry::Criu::none;
    if (e->job.from_image && e->job.state != GuestState::running && e->job.state != GuestState::dump_ready) {
        e->why = std::move(why);
        return end_capsule(*e, Ending::to_failed, What::kill_capsule, out);
    }
    back_to_running(*e, why, out);
}

void Guest::back_to_running(Entry& e, const std::string& why, Outputs& out) const {
    e.criu = Entry::Criu::none;
    e.dump = Entry::Dump::none;
    e.to_disk = false;
    e.shipping = false;
    if (e.job.state == GuestState::exited) return;
    if (std::exchange(e.kill_asked, false)) return end_capsule(e, Ending::to_killed, What::kill_capsule, out);
    e.why = why;
    now_running(e, out);
    e.why.clear();
}

void Guest::dump_froze(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->dump != Entry::Dump::making || e->job.state == GuestState::exited) return;
    e->job.state = GuestState::dumping;
    tell(*e, out);
}

void Guest::dump_held(const GuestKey& key, int64_t image_bytes, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->dump != Entry::Dump::making) return;
    e->dump = Entry::Dump::held;
    e->job.image_bytes = image_bytes;
    if (e->kill_asked) return end_capsule(*e, Ending::to_killed, What::finish_dump, out);
    if (e->resume_asked) return undo(*e, out);
    if (e->to_disk) {  // the image is the job from here on, and on disk before what ran is killed
        e->job.state = GuestState::frozen;
        out.push_back(Persist{e->job});
        return end_capsule(*e, Ending::to_frozen, What::finish_dump, out);
    }
    e->shipping = true;
    out.push_back(Do{What::ship, key, e->ship_epoch, e->ship_dest, 0});
}

void Guest::dump_failed(const GuestKey& key, std::string why, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none) return;
    back_to_running(*e, why, out);
}

void Guest::dump_undone(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || !e->undoing) return;
    e->undoing = false;
    if (e->ending != Ending::none) return;
    const bool wanted_again = e->criu == Entry::Criu::coming;
    const bool to_disk = e->to_disk;
    back_to_running(*e, e->why, out);
    e->to_disk = to_disk;
    if (wanted_again && e->ending == Ending::none) want_criu(*e, out);
}

void Guest::shipped(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || !e->shipping) return;
    e->shipping = false;
    if (e->ending != Ending::none || e->job.state == GuestState::frozen) return;
    e->job.state = GuestState::shipped;
    tell(*e, out);
}

void Guest::ship_failed(const GuestKey& key, std::string why, Outputs& out) {
    Entry* e = entry(key);
    if (!e || !e->shipping) return;
    e->shipping = false;
    if (e->ending != Ending::none || e->undoing) return;
    e->why = std::move(why);
    tell(*e, out);  // dumping or frozen, with a reason: the home node gives the move up
    if (e->job.state == GuestState::frozen) e->why.clear();
}

void Guest::image_received(const GuestKey& key, int64_t image_bytes, Outputs& out) {
    if (!expects_image(key)) return;
    Entry* e = entry(key);
    e->restoring = true;
    e->job.image_bytes = image_bytes;
    effect(*e, What::restore, out);
}

void Guest::image_failed(const GuestKey& key, std::string why, Outputs& out) {
    if (!expects_image(key)) return;
    Entry* e = entry(key);
    e->why = std::move(why);
    end_capsule(*e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::restore_held(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || !e->restoring || e->ending != Ending::none) return;
    e->restoring = false;
    e->job.state = GuestState::held;
    tell(*e, out);
}

void Guest::restore_failed(const GuestKey& key, std::string why, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none) return;
    e->why = std::move(why);
    end_capsule(*e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::restore_running(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e || !e->releasing || e->ending != Ending::none) return;
    e->releasing = false;
    e->criu = Entry::Criu::none;
    e->job.state = GuestState::running;
    out.push_back(Persist{e->job});
    now_running(*e, out);
}

void Guest::capsule_gone(const GuestKey& key, Outputs& out) {
    Entry* e = entry(key);
    if (!e) return;
    const std::string why = e->why.empty() ? "its capsule ended unexpectedly" : e->why;
    switch (std::exchange(e->ending, Ending::none)) {
        case Ending::to_frozen:
            e->criu = Entry::Criu::none;
            e->dump = Entry::Dump::none;
            e->to_disk = e->shipping = false;
            e->why.clear();
            return tell(*e, out);
        case Ending::to_killed:
            e->job.state = GuestState::killed;
            out.push_back(Persist{e->job});
            return tell(*e, out);
        case Ending::to_dropped:
            erase(key, out);
            return tell_absent(key, GuestState::unknown, "", out);
        case Ending::none:
            if (e->job.state == GuestState::exited || e->job.state == GuestState::frozen || e->job.state == GuestState::killed)
                return;
            [[fallthrough]];
        case Ending::to_failed:
            erase(key, out);
            return tell_absent(key, GuestState::failed, why, out);
    }
}

void Guest::exited(const GuestKey& key, int32_t wait_status, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->ending != Ending::none || e->job.state == GuestState::frozen || e->job.state == GuestState::killed) return;
    e->job.state = GuestState::exited;
    e->job.wait_status = wait_status;
    e->why.clear();
    tell(*e, out);
}

void Guest::stopped(const GuestKey& key, bool is_stopped, Outputs& out) {
    Entry* e = entry(key);
    if (!e || e->stopped == is_stopped) return;
    e->stopped = is_stopped;
    if (e->job.state == GuestState::running) tell(*e, out);
}

}  // namespace souk
