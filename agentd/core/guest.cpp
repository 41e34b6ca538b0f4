// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, first part: commands. See guest.hpp.
#include "agentd/core/guest.hpp"

#include "kernel/base/check.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

Guest::Entry* Guest::entry(const GuestKey& key) {
    const auto it = jobs_.find(key);
    return it == jobs_.end() ? nullptr : &it->second;
}

const GuestJob* Guest::find(const GuestKey& key) const {
    const auto it = jobs_.find(key);
    return it == jobs_.end() ? nullptr : &it->second.job;
}

bool Guest::expects_image(const GuestKey& key) const {
    const auto it = jobs_.find(key);
    return it != jobs_.end() && it->second.job.state == GuestState::prepared && !it->second.restoring &&
           it->second.ending == Ending::none;
}

void Guest::tell(const Entry& e, Outputs& out) const {
    GuestEvent event;
    event.id = e.job.key.id;
    event.epoch = e.job.key.epoch;
    event.state = e.job.state;
    event.wait_status = e.job.wait_status;
    event.image_bytes = e.job.image_bytes;
    event.why = e.why;
    event.stopped = e.stopped;
    out.push_back(ToHome{event.id.home, std::move(event)});
}

void Guest::tell_absent(const GuestKey& key, GuestState state, const std::string& why, Outputs& out, int32_t error,
                        bool program_error) const {
    GuestEvent event;
    event.id = key.id;
    event.epoch = key.epoch;
    event.state = state;
    event.why = why;
    event.error = error;
    event.program_error = program_error;
    out.push_back(ToHome{key.id.home, std::move(event)});
}

void Guest::effect(const Entry& e, What what, Outputs& out) const { out.push_back(Do{what, e.job.key, {}, {}, 0}); }

void Guest::end_capsule(Entry& e, Ending ending, What how, Outputs& out) const {
    if (e.ending != Ending::none) return;
    e.ending = ending;
    effect(e, how, out);
}

void Guest::erase(const GuestKey& key, Outputs& out) {
    const auto it = jobs_.find(key);
    MUST(it != jobs_.end());
    effect(it->second, What::remove, out);
    out.push_back(Erase{key});
    jobs_.erase(it);
}

void Guest::set_accepting(bool accepting, std::string why, Outputs& out) {
    accepting_ = accepting;
    why_not_ = std::move(why);
    if (accepting) return;
    for (const auto& [key, e] : jobs_)
        if (e.job.state == GuestState::running || e.job.state == GuestState::dump_ready)
            out.push_back(ToHome{key.id.home, Expel{key.id, key.epoch}});
}

void Guest::command(const NodeName& from, const GuestCommand& c, Outputs& out) {
    const GuestKey key{c.id, c.epoch};
    // Only the home node speaks for its jobs.
    if (from != c.id.home) return;
    if (c.verb == GuestVerb::start || c.verb == GuestVerb::prepare) return on_start(c, out);
    Entry* e = entry(key);
    if (!e) return tell_absent(key, GuestState::unknown, "", out);
    if (e->ending != Ending::none) return;  // its end is under way and will be told
    switch (c.verb) {
        case GuestVerb::query: return tell(*e, out);
        case GuestVerb::prepare_dump: return on_prepare_dump(*e, out);
        case GuestVerb::ship: return on_ship(*e, c, out);
        case GuestVerb::freeze: return on_freeze(*e, out);
        case GuestVerb::commit: return on_commit(*e, out);
        case GuestVerb::resume: return on_resume(*e, out);
        case GuestVerb::release: return on_release(*e, out);
        case GuestVerb::restore_here: return on_restore_here(*e, c, out);
        case GuestVerb::drop: return on_drop(*e, out);
        case GuestVerb::kill: return on_kill(*e, out);
        case GuestVerb::signal:
            if (e->job.state == GuestState::running || e->job.state == GuestState::dump_ready)
                out.push_back(Do{What::signal, key, {}, {}, c.signal});
            return;
        case GuestVerb::start:
        case GuestVerb::prepare: return;
    }
}

void Guest::on_start(const GuestCommand& c, Outputs& out) {
    const GuestKey key{c.id, c.epoch};
    if (const Entry* known = entry(key)) {
        if (known->ending == Ending::none) tell(*known, out);
        return;
    }
    if (!accepting_) return tell_absent(key, GuestState::failed, why_not_, out);
    if (jobs_.size() >= jobs_max_) return tell_absent(key, GuestState::failed, "the node holds too many jobs", out);
    Entry e;
    e.job.key = key;
    e.job.spec = c.spec;
    e.job.memory_mb = c.memory_mb;
    e.job.cpus = c.cpus;
    e.job.from_image = c.verb == GuestVerb::prepare;
    const Entry& kept = jobs_.emplace(key, std::move(e)).first->second;
    out.push_back(Persist{kept.job});
    effect(kept, What::create_capsule, out);
}

void Guest::want_criu(Entry& e, Outputs& out) const {
    if (e.criu != Entry::Criu::none || e.undoing) return;  // an undo under way asks again at its end
    e.criu = Entry::Criu::coming;
    effect(e, What::ready_criu, out);
}

void Guest::on_prepare_dump(Entry& e, Outputs& out) const {
    if (e.job.state != GuestState::running || e.to_disk) return tell(e, out);
    e.why.clear();
    e.resume_asked = false;
    if (e.undoing) e.criu = Entry::Criu::coming;  // dump_undone starts it
    want_criu(e, out);
}

void Guest::begin_dump(Entry& e, Outputs& out) const {
    e.dump = Entry::Dump::making;
    e.resume_asked = false;
    effect(e, e.to_disk ? What::dump_to_disk : What::dump_for_move, out);
}

void Guest::on_ship(Entry& e, const GuestCommand& c, Outputs& out) {
    if (e.shipping || e.dump != Entry::Dump::none) return;
    e.ship_epoch = c.new_epoch;
    e.ship_dest = {c.dest, c.dest_address};
    e.why.clear();
    if (e.job.state == GuestState::frozen) {
        e.shipping = true;
        out.push_back(Do{What::ship, e.job.key, e.ship_epoch, e.ship_dest, 0});
    } else if (e.job.state == GuestState::dump_ready && e.criu == Entry::Criu::ready) {
        begin_dump(e, out);
    } else {
        tell(e, out);
    }
}

void Guest::on_restore_here(Entry& source, const GuestCommand& c, Outputs& out) {
    const GuestKey to{c.id, c.new_epoch};
    Entry* e = entry(to);
    if (!e) return tell_absent(to, GuestState::unknown, "", out);
    if (source.job.state != GuestState::frozen || !expects_image(to)) return;
    e->restoring = true;
    out.push_back(Do{What::restore_local, to, c.epoch, {}, 0});
}

void Guest::on_freeze(Entry& e, Outputs& out) const {
    if (e.to_disk || e.dump != Entry::Dump::none) return;  // under way
    if (e.job.state != GuestState::running && e.job.state != GuestState::dump_ready) return tell(e, out);
    e.to_disk = true;
    e.why.clear();
    if (e.criu == Entry::Criu::ready) return begin_dump(e, out);
    if (e.undoing) e.criu = Entry::Criu::coming;
    want_criu(e, out);
}

// The candidate owns the job. What runs here dies; a complete image stays until the home node drops it.
void Guest::on_commit(Entry& e, Outputs& out) const {
    if (e.job.state == GuestState::frozen || e.job.state == GuestState::exited || e.job.state == GuestState::killed)
        return tell(e, out);
    if (e.dump == Entry::Dump::held) {
        e.job.state = GuestState::frozen;
        out.push_back(Persist{e.job});
        return end_capsule(e, Ending::to_frozen, What::finish_dump, out);
    }
    end_capsule(e, Ending::to_killed, What::kill_capsule, out);
}

void Guest::undo(Entry& e, Outputs& out) const {
    e.undoing = true;
    e.resume_asked = false;
    e.criu = Entry::Criu::none;
    e.dump = Entry::Dump::none;
    e.to_disk = false;
    effect(e, What::undo_dump, out);
}

void Guest::on_resume(Entry& e, Outputs& out) const {
    if (e.dump == Entry::Dump::making) {
        e.resume_asked = true;  // a dump is never torn: refused at its end
        return;
    }
    const bool has_criu = !e.job.from_image || e.job.state == GuestState::dump_ready || e.job.state == GuestState::running;
    if (e.dump == Entry::Dump::held || (has_criu && e.criu != Entry::Criu::none && !e.to_disk)) return undo(e, out);
    tell(e, out);
}

void Guest::on_release(Entry& e, Outputs& out) const {
    if (e.job.state != GuestState::held || e.releasing) return tell(e, out);
    e.releasing = true;
    out.push_back(Persist{e.job});  // `held` on disk means: was told to run
    effect(e, What::finish_restore, out);
}

void Guest::on_kill(Entry& e, Outputs& out) const {
    switch (e.job.state) {
        case GuestState::exited:
        case GuestState::killed: return tell(e, out);
        case GuestState::frozen:
            e.job.state = GuestState::killed;
            out.push_back(Persist{e.job});
            return tell(e, out);
        default: break;
    }
    if (e.dump == Entry::Dump::making) {
        e.kill_asked = true;
        return;
    }
    const bool never_ran = e.job.from_image && !e.releasing && e.job.state != GuestState::running &&
                           e.job.state != GuestState::dump_ready && e.dump == Entry::Dump::none;
    end_capsule(e, never_ran ? Ending::to_dropped : Ending::to_killed,
                e.dump == Entry::Dump::held ? What::finish_dump : What::kill_capsule, out);
}

void Guest::on_drop(Entry& e, Outputs& out) {
    const GuestKey key = e.job.key;
    const GuestState s = e.job.state;
    if (s != GuestState::frozen && s != GuestState::exited && s != GuestState::killed) return tell(e, out);
    erase(key, out);
    tell_absent(key, GuestState::unknown, "", out);
}

}  // namespace souk
