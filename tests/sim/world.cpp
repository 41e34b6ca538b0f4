// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/sim/world.hpp"

#include <algorithm>
#include <utility>

namespace souk::sim {

void World::fail(const JobId& id, const std::string& what) {
    if (failure.empty()) failure = "job " + id.text() + ": " + what;
}

Capsule* World::capsule(const At& at) {
    const auto it = capsules.find(at);
    return it == capsules.end() ? nullptr : &it->second;
}

const Image* World::complete_image(const At& at) const {
    const auto it = images.find(at);
    return it != images.end() && it->second.complete ? &it->second : nullptr;
}

bool World::progressing(const JobId& id) const {
    const auto& of_job = capsules.of(id);
    return std::any_of(of_job.begin(), of_job.end(),
                       [](const auto* c) { return c->second.progressing(); });
}

// The copy at `at` has just become able to make progress.
void World::begin(const At& at, Nanos now) {
    Capsule& c = capsules[at];
    if (!c.progressing()) return;
    c.since = now;
    ++c.run;
    const JobId& id = at.second.id;
    Truth& t = truths[id];
    t.ran = true;
    int copies = 0;
    for (const auto* other : capsules.of(id)) copies += other->second.progressing();
    if (copies > 1)
        fail(id, "two copies make progress, the second as " + at.second.text() + " on " + at.first);
    if (t.ended) fail(id, "makes progress on " + at.first + " after its own end");
    if (c.base != t.frontier)
        fail(id, "goes on on " + at.first + " at " + std::to_string(c.base) +
                     " ns, but had come to " + std::to_string(t.frontier));
}

void World::stop(const At& at, Nanos now) {
    Capsule& c = capsules[at];
    if (!c.progressing()) return;
    c.base = progress(c, now);
    ++c.run;
    Truth& t = truths[at.second.id];
    if (!c.filling) t.frontier = std::max(t.frontier, c.base);
}

void World::check(const JobId& id, Nanos now) {
    const Truth& t = truths[id];
    if (!t.ran || t.ended || t.cancelled || t.destroyed) return;
    for (const auto* copy : capsules.of(id))
        if (const Capsule& c = copy->second;
            c.alive && c.job && !c.filling && progress(c, now) >= t.frontier)
            return;
    for (const auto* copy : images.of(id)) {
        const Image& image = copy->second;
        if (image.complete && image.form == MoveForm::stop_and_copy && image.progress == t.frontier)
            return;
    }
    fail(id, "is lost: no copy and no image of it is left");
}

void World::start(const At& at, Nanos now) {
    Capsule& c = capsules[at];
    c.job = true;
    c.base = 0;
    begin(at, now);
}

void World::freeze(const At& at, Nanos now) {
    stop(at, now);
    capsules[at].frozen = true;
}

void World::thaw(const At& at, Nanos now) {
    Capsule* c = capsule(at);
    if (!c || !c->frozen) return;
    c->frozen = false;
    begin(at, now);
}

void World::pause(const At& at, Nanos now, bool on) {
    Capsule* c = capsule(at);
    if (!c || c->paused == on) return;
    if (on) {
        stop(at, now);
        ++truths[at.second.id].pauses;
    }
    c->paused = on;
    begin(at, now);
}

void World::make_image(const At& at, Nanos now, bool complete) {
    Image& image = images[at] = {};
    image.complete = complete;
    image.progress = progress(capsules[at], now);
    image.stood_from = now;
}

void World::restore(const At& at, const Image& image) {
    Capsule& c = capsules[at];
    c.job = c.restored = true;
    c.filling = image.form == MoveForm::post_copy;
    c.base = image.progress;
}

void World::whole(const At& at, Nanos now) {
    Capsule* c = capsule(at);
    if (!c || !c->pages_in || !std::exchange(c->filling, false)) return;
    Truth& t = truths[at.second.id];
    t.frontier = std::max(t.frontier, progress(*c, now));
    if (c->exited && !c->job && c->by_itself) {
        t.ended = c->status;
        t.ended_at = now;
    }
}

void World::release(const At& at, Nanos now) {
    capsules[at].restored = false;
    begin(at, now);
}

void World::exit(const At& at, int32_t status, Nanos now) {
    stop(at, now);
    Capsule& c = capsules[at];
    c.job = false;
    c.exited = true;
    c.status = status;
    c.by_itself = true;
    // The end of a stale copy, from which its job went back, is not the job's own.
    Truth& t = truths[at.second.id];
    if (!c.filling && c.base == t.frontier) {
        t.ended = status;
        t.ended_at = now;
    }
}

void World::kill_job(const At& at, Nanos now) {
    Capsule* c = capsule(at);
    if (!c || !c->job) return;
    stop(at, now);
    c->job = c->frozen = c->restored = c->paused = false;
    c->exited = true;
    c->status = 9;
    check(at.second.id, now);
}

void World::kill_capsule(const At& at, Nanos now) {
    Capsule* c = capsule(at);
    if (!c) return;
    stop(at, now);
    // what PID 1 wrote down stays until the directory goes
    c->alive = c->job = c->frozen = c->restored = c->paused = false;
    check(at.second.id, now);
}

void World::destroy(const At& at, Nanos now) {
    Capsule* c = capsule(at);
    if (!c) return;
    Truth& t = truths[at.second.id];
    if ((c->job || !t.ran) && (!c->filling || c->pages_in) && progress(*c, now) >= t.frontier)
        t.destroyed = true;
    kill_capsule(at, now);
}

void World::machine_dies(const NodeName& node, Nanos now) {
    for (auto& [at, c] : capsules.on(node)) destroy(at, now);
    for (auto it = images.on(node).begin(); it != images.end() && it->first.first == node;) {
        const bool gone = it->second.in_ram;
        if (gone && it->second.progress >= truths[it->first.second.id].frontier)
            truths[it->first.second.id].destroyed = true;
        it = gone ? images.erase(it) : std::next(it);
    }
}

void World::stands_at(const JobId& id, const At& source, Nanos now) {
    Truth& t = truths[id];
    const Capsule* c = capsule(source);
    const Image* image = complete_image(source);
    if (progressing(id)) return fail(id, "is called lost while it runs");
    // A candidate that its node writes down later comes too late.
    for (const auto* other : capsules.of(id))
        if (other->first != source) capsules[other->first].pages_in = false;
    t.went_back = true;
    t.ended.reset();
    if (c && c->alive && c->job)
        t.frontier = progress(*c, now);
    else if (image && image->form == MoveForm::stop_and_copy)
        t.frontier = image->progress;
    else
        t.destroyed = true;
}

void World::go_back(const JobId& id, const At* checkpoint) {
    Truth& t = truths[id];
    if (progressing(id)) return fail(id, "goes back while a copy of it runs");
    const Image* image = checkpoint ? complete_image(*checkpoint) : nullptr;
    if (checkpoint && !image) return fail(id, "goes back to a checkpoint that is not there");
    if (image && image->progress > t.frontier) return fail(id, "goes back to what has not been");
    t.frontier = image ? image->progress : 0;
    t.ran = image != nullptr;
    t.destroyed = false;
    t.went_back = true;
    t.ended.reset();
}

void World::remove(const At& at, Nanos now) {
    kill_capsule(at, now);
    capsules.erase(at);
    drop_image(at, now);
}

void World::drop_image(const At& at, Nanos now) {
    images.erase(at);
    check(at.second.id, now);
}

}  // namespace souk::sim
