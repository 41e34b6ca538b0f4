// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_view.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/json.hpp"

namespace souk {

using namespace guest;

namespace {

// Writes the names of the flags that are set.
void write_flags(JsonWriter& j, const std::vector<std::pair<const char*, bool>>& flags) {
    j.key("flags").begin_array();
    for (const auto& [name, set] : flags)
        if (set) j.value(name);
    j.end_array();
}

void write_place(JsonWriter& j, const char* name, const Peer& peer, Epoch epoch) {
    if (epoch.n > 0) j.field(name, peer.node + "." + std::to_string(epoch.n));
}

// Says whether a CRIU stands ready or comes; null: neither.
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

// The kind of dump that a CRIU stands ready for, or makes.
const Aim* aim_of(const state::Running& r) {
    if (const auto* coming = r.in<motion::CriuComing>()) return &coming->aim;
    if (const auto* ready = r.in<motion::CriuReady>()) return &ready->aim;
    const auto* making = r.in<motion::Making>();
    return making ? &making->aim : nullptr;
}

// The step of a dump; null: there is none.
const char* dump_of(const state::Running& r) {
    const bool dump = r.in<motion::Precopy>() || r.in<motion::Making>() || r.in<motion::Held>();
    return dump ? to_string(r.motion) : nullptr;
}

// The flags of a job that runs.
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

// The flags of any job; most belong to one that does not run yet.
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

namespace {

// The reason why a guest is still in memory, for people, if it has none of its own.
const char* why_in_memory(const Entry& e) {
    const auto* r = e.in<state::Running>();
    if (e.in<state::Closing>()) return "it is being ended";
    if (r && r->retained) return "a copy elsewhere needs its memory";
    return e.runs() ? "it runs" : "it stands in memory";
}

}  // namespace

Here GuestView::here(const NodeName& self) const {
    Here here;
    bool said = false;  // here.who has a reason of its own
    std::string image;
    for (const auto& [key, e] : jobs_.all()) {
        const bool at_home = e.job.kept || (e.in<state::Frozen>() && key.id.home == self);
        if (at_home || e.in<state::Failed>()) continue;
        ++here.all;
        here.running += e.runs();
        const auto* r = e.in<state::Running>();
        here.going += (r && r->retained) || e.in<state::Closing>();
        here.going += images_.can_go_home(e);
        if (image.empty() && owner_.image_must_leave(e))
            image = key.id.text() + " " + images_.wait_text(e);
        if (!e.in_memory()) continue;
        ++here.in_memory;
        here.memory_mb += e.job.memory_mb;
        const Trouble& why = e.in_place() ? e.why : r ? e.why_immovable() : e.leaving.looked;
        if (said || (!here.who.empty() && why.empty() && !e.runs())) continue;
        said = !why.empty();
        here.who = key.id.text() + ": ";
        here.who += said ? static_cast<const std::string&>(why) : why_in_memory(e);
    }
    here.going += static_cast<uint32_t>(jobs_.going());
    here.all += static_cast<uint32_t>(jobs_.going());
    if (here.in_memory == 0 && here.all > 0) {
        here.who = "images are on its disk";
        if (!image.empty()) here.who += ": " + image;
    }
    return here;
}

std::vector<MemoryWish::Standing> GuestView::standing() const {
    std::vector<MemoryWish::Standing> all;
    for (const auto& [key, e] : jobs_.all()) {
        const auto* r = e.in<state::Running>();
        const bool ends = e.in<state::Closing>() || (r && r->retained);
        const bool paused = r && e.is_paused();
        if (!ends && !e.in_place_by_order() && !(paused && !e.in_place() && !e.immovable()))
            continue;
        const bool goes = r && !e.in_place() && r->want != Want::run;
        all.push_back({key, e.job.memory_mb, ends || goes || owner_.must_go(e)});
    }
    return all;
}

bool GuestView::any_paused() const {
    return std::any_of(jobs_.all().begin(), jobs_.all().end(),
                       [](const auto& job) { return job.second.pause_asked; });
}

bool GuestView::any_leaves() const {
    return std::any_of(jobs_.all().begin(), jobs_.all().end(), [](const auto& job) {
        const Entry& e = job.second;
        const auto* r = e.in<state::Running>();
        if (r == nullptr) return e.in<state::Closing>() != nullptr;
        const bool works = r->in<motion::CriuComing>() || r->in<motion::CriuReady>() ||
                           r->in<motion::Making>() || r->in<motion::Undoing>();
        // After a checkpoint the job goes on here.
        const bool saves =
            r->want == Want::save ||
            (r->cut == Cut::checkpoint && (r->want == Want::ready || r->want == Want::cut));
        return r->in<motion::Precopy>() || (works && r->want != Want::run && !saves);
    });
}

std::vector<Left> GuestView::left() const {
    std::vector<Left> all;
    for (const auto& [key, e] : jobs_.all()) {
        const auto* r = e.in<state::Running>();
        if (!r || r->retained) continue;
        const bool stays = e.in_place() && !e.job.by_order;
        all.push_back({key, e.in_place(), stays, e.job.memory_mb,
                       stays           ? e.why
                       : e.immovable() ? e.why_immovable()
                                       : Trouble(),
                       e.paused});
    }
    return all;
}

void GuestView::describe(const Entry& e, Nanos now, JsonWriter& j) const {
    const auto* r = e.in<state::Running>();
    const auto* closing = e.in<state::Closing>();
    j.field("job", e.job.key.id.text())
        .field("epoch", e.job.key.epoch.n)
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
        {"must_leave", owner_.image_must_leave(e)},
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
    if (e.immovable()) j.field("cannot_move", e.why_immovable());
    if (const std::string image = images_.wait_text(e); !image.empty()) j.field("image", image);
    if (!e.why.empty()) j.field("why", e.why);
}

}  // namespace souk
