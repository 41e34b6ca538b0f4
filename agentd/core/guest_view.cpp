// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: what it holds of one job right now, for people who look into a running daemon.
#include <utility>
#include <vector>

#include "agentd/core/guest.hpp"
#include "kernel/base/json.hpp"

namespace souk {

using namespace guest;

namespace {

// The names of what is true.
void write_flags(JsonWriter& j, const std::vector<std::pair<const char*, bool>>& flags) {
    j.key("flags").begin_array();
    for (const auto& [name, set] : flags)
        if (set) j.value(name);
    j.end_array();
}

void write_place(JsonWriter& j, const char* name, const Peer& peer, Epoch epoch) {
    if (epoch.n > 0) j.field(name, peer.node + "." + std::to_string(epoch.n));
}

// Where a CRIU is, or comes.
const char* criu_of(const State& state, bool kept) {
    if (const auto* s = std::get_if<state::Starting>(&state))
        return s->step == state::Starting::Step::criu ? "coming" : nullptr;
    if (const auto* r = std::get_if<state::Running>(&state)) {
        if (r->in<motion::CriuComing>()) return "coming";
        const auto* held = r->in<motion::Held>();
        const bool found = r->want == Want::keep;  // after a crash
        const bool ready = r->in<motion::CriuReady>() || r->in<motion::Precopy>() ||
                           r->in<motion::Making>() ||
                           (held && held->by == motion::Held::By::dump && !found);
        return ready ? "ready" : nullptr;
    }
    const bool ready = (std::holds_alternative<state::Prepared>(state) && !kept) ||
                       std::holds_alternative<state::Restoring>(state) ||
                       std::holds_alternative<state::Held>(state);
    return ready ? "ready" : nullptr;
}

bool not_whole(const State& state) {
    const auto* restoring = std::get_if<state::Restoring>(&state);
    const auto* held = std::get_if<state::Held>(&state);
    return (restoring && !restoring->whole) || (held && !held->whole) ||
           std::holds_alternative<state::Filling>(state);
}

// What a CRIU stands ready for, or makes.
const Aim* aim_of(const state::Running& r) {
    if (const auto* coming = r.in<motion::CriuComing>()) return &coming->aim;
    if (const auto* ready = r.in<motion::CriuReady>()) return &ready->aim;
    const auto* making = r.in<motion::Making>();
    return making ? &making->aim : nullptr;
}

// How far a dump is.
const char* dump_of(const state::Running& r) {
    const bool dump = r.in<motion::Precopy>() || r.in<motion::Making>() || r.in<motion::Held>();
    return dump ? to_string(r.motion) : nullptr;
}

// The flags of what runs.
std::vector<std::pair<const char*, bool>> flags_of(const state::Running& r) {
    using Image = motion::Held::Image;
    const Aim* aim = aim_of(r);
    const auto* held = r.in<motion::Held>();
    const bool midway = held && held->by == motion::Held::By::lease_midway;
    return {{"to_disk", aim && *aim == Aim::disk},
            {"to_keep", aim && *aim == Aim::keep},
            {"undoing", r.in<motion::Undoing>()},
            {"kill_asked", r.want == Want::kill},
            {"image_lost", held && held->image == Image::lost},
            {"shipped_kept", r.shipped_kept},
            {"live", held && held->image == Image::live},
            {"fenced", held && held->fenced},
            {"retained", r.retained},
            {"stands", held && held->by_lease()},
            {"or_stand", r.or_stand},
            {"stand_first", r.stand_first},
            {"standing", r.in<motion::Standing>() || midway}};
}

// And of what does not run yet.
std::vector<std::pair<const char*, bool>> flags_of(const State& state) {
    using Step = state::Starting::Step;
    using Release = state::Held::Release;
    if (const auto* r = std::get_if<state::Running>(&state)) return flags_of(*r);
    const auto* s = std::get_if<state::Starting>(&state);
    const auto* h = std::get_if<state::Held>(&state);
    const Early early = s ? s->early : h ? h->early : Early{};
    return {{"starting_job", s && s->step == Step::job},
            {"restoring", std::holds_alternative<state::Restoring>(state)},
            {"releasing", h && h->release == Release::under_way},
            {"gone", early.what == Early::What::gone},
            {"start_waits", s && s->step == Step::answer},
            {"release_waits", h && h->release == Release::waits},
            {"not_whole", not_whole(state)}};
}

}  // namespace

void Guest::describe(const GuestKey& key, Nanos now, JsonWriter& j) const {
    const auto it = jobs_.find(key);
    if (it == jobs_.end()) return;
    const Entry& e = it->second;
    const auto* r = e.in<Running>();
    const auto* closing = e.in<state::Closing>();
    j.field("job", key.id.text())
        .field("epoch", key.epoch.n)
        .field("state", to_string(e.job.state));
    if (r && r->want != Want::run) j.field("want", to_string(r->want));
    if (const char* criu = criu_of(e.state, e.job.kept)) j.field("criu", criu);
    if (const char* dump = r ? dump_of(*r) : nullptr) j.field("dump", dump);
    if (e.checkpoint.save != Save::none) j.field("checkpoint", to_string(e.checkpoint.save));
    if (closing) j.field("ending", to_string(closing->ending));
    auto flags = flags_of(e.state);
    const std::initializer_list<std::pair<const char*, bool>> all = {
        {"from_image", e.job.from_image},
        {"kept", e.job.kept},
        {"lapsed", e.job.lapsed},
        {"must_leave", image_must_leave(e)},
        {"in_place", e.job.in_place},
        {"by_order", e.job.by_order},
        {"shipping", e.shipment.way != Shipment::Way::none},
        {"ship_again", e.shipment.way == Shipment::Way::again},
        {"stopped", e.stopped},
        {"paused", !e.paused.empty()},
        {"lapsing", e.lease.stage != Lease::Stage::good},
        {"over", e.lease.over()}};
    flags.insert(flags.begin(), all);
    write_flags(j, flags);
    write_place(j, "ship_to", e.shipment.dest, e.shipment.epoch);
    write_place(j, "checkpoint_to", e.checkpoint.dest, e.checkpoint.epoch);
    if (e.lease.until != Nanos::never()) j.field("lease_left_s", (e.lease.until - now).seconds());
    j.field("memory_mb", e.job.memory_mb).field("cpus", e.job.cpus);
    if (e.job.image_bytes > 0) j.field("image_bytes", e.job.image_bytes);
    if (immovable(e)) j.field("cannot_move", why_immovable(e));
    if (const std::string image = image_text(e); !image.empty()) j.field("image", image);
    if (!e.why.empty()) j.field("why", e.why);
}

}  // namespace souk
