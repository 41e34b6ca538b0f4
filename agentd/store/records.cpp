// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/store/records.hpp"

#include "agentd/store/records.pb-c.h"
#include "agentd/wire/codec_parts.hpp"

namespace souk::wire {
namespace {

Pb__Orphan* fill_orphan(const Orphan& r, Arena& a) {
    auto* m = make(a, pb__orphan__init);
    m->peer = fill_peer(r.peer, a);
    m->epoch = r.epoch.n;
    return m;
}

Orphan take_orphan(const char* field, const Pb__Orphan& m, Check& c) {
    return {take_peer_or_none(field, m.peer, c), c.epoch(field, m.epoch)};
}

Pb__Checkpoint* fill_checkpoint(const Checkpoint& v, Arena& a) {
    auto* m = make(a, pb__checkpoint__init);
    m->at = fill_peer(v.at, a);
    m->epoch = v.epoch.n;
    m->taken = v.taken.ns;
    m->bytes = v.bytes;
    m->stdout_end = v.output_end[0];
    m->stderr_end = v.output_end[1];
    m->input_end = v.input_end;
    return m;
}

Checkpoint take_checkpoint(const Pb__Checkpoint& m, Check& c) {
    return {take_peer_or_none("checkpoint", m.at, c),
            c.epoch("checkpoint", m.epoch),
            c.time("checkpoint", m.taken),
            c.in<int64_t>("checkpoint", m.bytes, 0, bytes_max),
            {c.count("checkpoint", m.stdout_end), c.count("checkpoint", m.stderr_end)},
            c.count("checkpoint", m.input_end)};
}

Pb__Splice* fill_splice(const Splice& v, Arena& a) {
    auto* m = make(a, pb__splice__init);
    m->due = v.due;
    m->stdout_shift = v.shift[0];
    m->stderr_shift = v.shift[1];
    m->input_shift = v.input_shift;
    m->at = v.at;
    m->text = fill_string(v.text, a);
    return m;
}

Splice take_splice(const Pb__Splice& m, Check& c) {
    return {bool(m.due),
            {c.count("splice", m.stdout_shift), c.count("splice", m.stderr_shift)},
            c.count("splice", m.input_shift),
            c.count("splice", m.at),
            std::string(m.text)};
}

Pb__StoryStep* fill_step(const StoryStep& v, Arena& a) {
    auto* m = make(a, pb__story_step__init);
    m->what = static_cast<uint32_t>(v.what);
    m->at = v.at.ns;
    m->node = fill_string(v.node, a);
    m->from = fill_string(v.from, a);
    m->price = v.price.micro;
    m->form = static_cast<uint32_t>(v.form);
    m->bytes = v.bytes;
    m->precopy_bytes = v.precopy_bytes;
    m->pause = v.pause.ns + 1;
    m->sent = v.sent.ns + 1;
    m->held = v.held.ns + 1;
    m->released = v.released.ns + 1;
    m->total = v.total.ns + 1;
    m->why = fill_line(v.why, a, Story::why_max);
    m->count = v.count;
    return m;
}

StoryStep take_step(const Pb__StoryStep& m, Check& c) {
    const auto span = [&](const char* field, int64_t ns) {
        return Nanos{c.span(field, ns).ns - 1};
    };
    StoryStep v;
    v.what = c.one_of("story", m.what, StoryStep::What::submitted, StoryStep::What::finished);
    v.at = c.time("story at", m.at);
    v.node = c.node_or_none("story node", m.node);
    v.from = c.node_or_none("story from", m.from);
    v.price = c.price("story price", m.price);
    v.form = c.one_of("story form", m.form, MoveForm::stop_and_copy, MoveForm::post_copy);
    v.bytes = c.count("story bytes", m.bytes);
    v.precopy_bytes = c.count("story ahead_bytes", m.precopy_bytes);
    v.pause = span("story pause", m.pause);
    v.sent = span("story sent", m.sent);
    v.held = span("story held", m.held);
    v.released = span("story released", m.released);
    v.total = span("story total", m.total);
    v.why = clean(m.why, Story::why_max);
    v.count = m.count;
    return v;
}

void fill(const HomeJob& v, Pb__HomeJob& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.spec = fill_spec(v.spec, a);
    m.terms = fill_terms(v.terms, a);
    m.name = fill_line(v.name, a, name_max);
    m.user = fill_line(v.user, a, name_max);
    m.submitted = v.submitted.ns;
    m.phase = static_cast<uint32_t>(v.phase);
    m.at = fill_peer(v.at, a);
    m.epoch = v.epoch.n;
    m.to = fill_peer(v.to, a);
    m.to_epoch = v.to_epoch.n;
    m.last_epoch = v.last_epoch.n;
    m.step = static_cast<uint32_t>(v.step);
    m.from_frozen = v.from_frozen;
    m.order_seq = v.order_seq;
    m.cancelled = v.cancelled;
    m.stats = fill_stats(v.stats, a);
    fill_places(v.places, m.n_places, m.places, a);
    fill_places(v.lacking, m.n_lacking, m.lacking, a);
    m.lacking_status = v.lacking_status;
    m.lacking_why = fill_line(v.lacking_why, a);
    m.comment = fill_line(v.comment, a);
    m.wait_status = v.wait_status;
    m.why = fill_line(v.why, a);
    m.cost = v.cost.micro;
    m.price = v.price.micro;
    m.cpu_here = v.cpu_here.ns;
    m.settled = v.settled;
    m.token = v.token;
    m.n_orphans = v.orphans.size();
    m.orphans = a.array<Pb__Orphan*>(v.orphans.size());
    for (size_t i = 0; i < v.orphans.size(); ++i) {
        m.orphans[i] = fill_orphan(v.orphans[i], a);
    }
    if (v.checkpoint != Checkpoint{}) m.checkpoint = fill_checkpoint(v.checkpoint, a);
    if (v.saving != Orphan{}) m.saving = fill_orphan(v.saving, a);
    m.leased = v.leased;
    m.to_leased = v.to_leased;
    m.in_place = v.in_place;
    if (v.splice != Splice{}) m.splice = fill_splice(v.splice, a);
    m.cost_run = v.cost_run.ns + 1;
    m.stay_run = v.stay_run.ns + 1;
    if (v.running_since != Nanos::never()) m.running_since = v.running_since.ns;
    m.boot = v.boot;
    m.day_limit = v.day_limit.micro;
    m.day_cost = v.day_cost.micro;
    m.day_warn = v.day_warn.micro;
    const std::vector<StoryStep>& story = v.story.steps();
    m.n_story = story.size();
    m.story = a.array<Pb__StoryStep*>(m.n_story);
    for (size_t i = 0; i < m.n_story; ++i) m.story[i] = fill_step(story[i], a);
    m.story_left_out = v.story.left_out();
}

HomeJob take(const Pb__HomeJob& m, Check& c) {
    HomeJob v;
    v.id = c.job(m.id);
    v.spec = take_spec(m.spec, c);
    v.terms = take_terms(m.terms, c);
    v.name = clean(m.name, name_max);
    v.user = clean(m.user, name_max);
    v.submitted = c.time("submitted", m.submitted);
    v.phase = c.one_of("phase", m.phase, JobPhase::waiting, JobPhase::finished);
    v.at = take_peer_or_none("at", m.at, c);
    v.epoch = c.epoch("epoch", m.epoch);
    v.to = take_peer_or_none("to", m.to, c);
    v.to_epoch = c.epoch("to_epoch", m.to_epoch);
    v.last_epoch = c.epoch("last_epoch", m.last_epoch);
    v.step = c.one_of("step", m.step, MoveStep::none, MoveStep::release);
    v.from_frozen = m.from_frozen;
    v.order_seq = c.count("order_seq", m.order_seq);
    v.cancelled = m.cancelled;
    v.stats = take_stats(m.stats, c);
    v.places = take_places(m.n_places, m.places, c);
    v.lacking = take_places(m.n_lacking, m.lacking, c);
    v.lacking_status = m.lacking_status;
    v.lacking_why = clean(m.lacking_why);
    v.comment = clean(m.comment);
    v.wait_status = m.wait_status;
    v.why = clean(m.why);
    v.cost = c.amount("cost", m.cost);
    v.price = c.price("price", m.price);
    v.cpu_here = c.span("cpu_here", m.cpu_here);
    v.settled = m.settled;
    v.token = m.token;
    for (size_t i = 0; i < m.n_orphans; ++i)
        v.orphans.push_back(take_orphan("orphans", *m.orphans[i], c));
    v.leased = m.leased;
    v.to_leased = m.to_leased;
    v.in_place = m.in_place;
    if (m.checkpoint) v.checkpoint = take_checkpoint(*m.checkpoint, c);
    if (m.saving) v.saving = take_orphan("saving", *m.saving, c);
    if (m.splice) v.splice = take_splice(*m.splice, c);
    v.cost_run = Nanos{c.span("cost_run", m.cost_run).ns - 1};
    v.stay_run = Nanos{c.span("stay_run", m.stay_run).ns - 1};
    if (const Nanos since = c.span("running_since", m.running_since); since.ns > 0)
        v.running_since = since;
    v.boot = m.boot;
    v.day_limit = c.amount("day_limit", m.day_limit);
    v.day_cost = c.amount("day_cost", m.day_cost);
    v.day_warn = c.amount("day_warn", m.day_warn);
    std::vector<StoryStep> story;
    story.reserve(m.n_story);
    for (size_t i = 0; i < m.n_story; ++i) story.push_back(take_step(*m.story[i], c));
    v.story = {std::move(story), m.story_left_out};
    return v;
}

void fill(const GuestJob& v, Pb__GuestJob& m, Arena& a) {
    m.id = fill_id(v.key.id, a);
    m.epoch = v.key.epoch.n;
    m.spec = fill_spec(v.spec, a);
    m.memory_mb = v.memory_mb;
    m.cpus = v.cpus;
    m.state = static_cast<uint32_t>(v.state);
    m.from_image = v.from_image;
    m.kept = v.kept;
    m.lapsed = v.lapsed;
    m.in_place = v.in_place;
    m.image_bytes = v.image_bytes;
    m.wait_status = v.wait_status;
}

GuestJob take(const Pb__GuestJob& m, Check& c) {
    GuestJob v;
    v.key = {c.job(m.id), c.epoch("epoch", m.epoch)};
    v.spec = take_spec(m.spec, c);
    v.memory_mb = c.megabytes("memory_mb", m.memory_mb);
    v.cpus = c.cpus("cpus", m.cpus);
    v.state = c.one_of("state", m.state, GuestState::unknown, GuestState::filling);
    v.from_image = m.from_image;
    v.kept = m.kept;
    v.lapsed = m.lapsed;
    v.in_place = m.in_place;
    v.image_bytes = c.in<int64_t>("image_bytes", m.image_bytes, 0, bytes_max);
    v.wait_status = m.wait_status;
    return v;
}

void fill(const ProviderRecord& v, Pb__ProviderRecord& m, Arena& a) {
    m.reserve = v.reserve.micro;
    m.speed = v.speed;
    m.cpus = v.cpus;
    m.memory_mb = v.memory_mb;
    m.frames = fill_line(v.frames, a);
    m.on_market = v.on_market;
    m.by_hand = v.by_hand;
    m.since_unix_s = v.since_unix_s;
    m.set = v.set;
}

ProviderRecord take(const Pb__ProviderRecord& m, Check& c) {
    ProviderRecord v;
    v.reserve = c.price("reserve", m.reserve);
    v.speed = c.in<int64_t>("speed", m.speed, 1, provider_speed_max);
    v.cpus = c.cpus("cpus", m.cpus);
    v.memory_mb = c.megabytes("memory_mb", m.memory_mb);
    v.frames = clean(m.frames);
    v.on_market = m.on_market;
    v.by_hand = m.by_hand;
    v.since_unix_s = m.since_unix_s;
    v.set = m.set;
    return v;
}

}  // namespace

SOUK_WIRE_CODEC(HomeJob, Pb__HomeJob, pb__home_job)
SOUK_WIRE_CODEC(GuestJob, Pb__GuestJob, pb__guest_job)
SOUK_WIRE_CODEC(ProviderRecord, Pb__ProviderRecord, pb__provider_record)

}  // namespace souk::wire
