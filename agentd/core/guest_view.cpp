// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: what it holds of one job right now, for people who look into a running daemon.
#include <utility>

#include "agentd/core/guest.hpp"
#include "kernel/base/json.hpp"

namespace souk {

namespace {

// The names of what is true.
void write_flags(JsonWriter& j, std::initializer_list<std::pair<const char*, bool>> flags) {
    j.key("flags").begin_array();
    for (const auto& [name, set] : flags)
        if (set) j.value(name);
    j.end_array();
}

void write_place(JsonWriter& j, const char* name, const Peer& peer, Epoch epoch) {
    if (epoch.n > 0) j.field(name, peer.node + "." + std::to_string(epoch.n));
}

}  // namespace

void Guest::describe(const GuestKey& key, Nanos now, JsonWriter& j) const {
    const auto it = jobs_.find(key);
    if (it == jobs_.end()) return;
    const Entry& e = it->second;
    j.field("job", key.id.text())
        .field("epoch", key.epoch.n)
        .field("state", to_string(e.job.state));
    if (e.want != Want::run) j.field("want", to_string(e.want));
    if (e.criu != Entry::Criu::none) j.field("criu", to_string(e.criu));
    if (e.dump != Entry::Dump::none) j.field("dump", to_string(e.dump));
    if (e.save != Entry::Save::none) j.field("checkpoint", to_string(e.save));
    if (e.ending != Ending::none) j.field("ending", to_string(e.ending));
    write_flags(j, {{"from_image", e.job.from_image},
                    {"kept", e.job.kept},
                    {"lapsed", e.job.lapsed},
                    {"in_place", e.job.in_place},
                    {"to_disk", e.to_disk},
                    {"to_keep", e.to_keep},
                    {"undoing", e.undoing},
                    {"shipping", e.shipping},
                    {"ship_again", e.ship_again},
                    {"starting_job", e.starting_job},
                    {"restoring", e.restoring},
                    {"releasing", e.releasing},
                    {"gone", e.gone},
                    {"kill_asked", e.kill_asked},
                    {"stopped", e.stopped},
                    {"image_lost", e.image_lost},
                    {"shipped_kept", e.shipped_kept},
                    {"live", e.live},
                    {"firm", e.firm},
                    {"retained", e.retained},
                    {"lapsing", e.lapsing},
                    {"over", e.over},
                    {"stands", e.stands},
                    {"start_waits", e.start_waits},
                    {"release_waits", e.release_waits},
                    {"not_whole", !e.whole},
                    {"or_stand", e.or_stand},
                    {"standing", e.standing}});
    write_place(j, "ship_to", e.ship_dest, e.ship_epoch);
    write_place(j, "checkpoint_to", e.save_dest, e.save_epoch);
    if (e.until != Nanos::never()) j.field("lease_left_s", (e.until - now).seconds());
    j.field("memory_mb", e.job.memory_mb).field("cpus", e.job.cpus);
    if (e.job.image_bytes > 0) j.field("image_bytes", e.job.image_bytes);
    if (immovable(e)) j.field("cannot_move", why_immovable(e));
    if (!e.why.empty()) j.field("why", e.why);
}

}  // namespace souk
