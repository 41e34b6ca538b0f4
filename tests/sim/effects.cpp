// SPDX-License-Identifier: GPL-2.0-or-later
// The fake capsules and the fake CRIU: see cluster.hpp. Each effect changes the world at one moment
// and says so at a later one; a crash of the daemon may fall between. Killing a capsule calls off
// whatever else goes on in it.
#include <csignal>

#include "kernel/base/check.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

using What = guest::Do::What;

// Homes try again after growing pauses.
static constexpr Nanos ships_again = Nanos::from_s(60), dumps_again = Nanos::from_s(600);

// A later stage of an effect of this life of the daemon, unless it was called off.
void Cluster::stage(const NodeName& name, const GuestKey& key, uint64_t token, Nanos delay,
                    Call call) {
    after(delay, [this, name, key, token, life = node(name).life, call = std::move(call)] {
        const Node& n = node(name);
        const auto it = n.work.find(key);
        if (n.up && n.life == life && it != n.work.end() && it->second == token) call();
    });
}

void Cluster::tell_guest(const NodeName& name, const GuestKey& key, uint64_t token,
                         guest::Event event) {
    stage(name, key, token, ms(0, 2), [this, name, key, event = std::move(event)] {
        guest_step(node(name), [&](Guest& g, guest::Outputs& o) { g.ended(key, event, o); });
    });
}

// Long: one case for each effect.
void Cluster::effect(Node& n, const guest::Do& d) {
    const NodeName name = n.name;
    const GuestKey key = d.key;
    const World::At at{name, key};
    uint64_t& token = n.work[key];
    const bool ends_others = d.what == What::kill_capsule || d.what == What::finish_dump ||
                             d.what == What::remove || d.what == What::undo_dump ||
                             d.what == What::go_on;
    if (ends_others) token = ++next_event_;
    const uint64_t t = token;
    const Nanos delay = takes(name, 1, 50, 30'000);
    switch (d.what) {
        case What::create_capsule:
            return stage(name, key, t, delay, [=, this] {
                if (fails(name))
                    return tell_guest(name, key, t, guest::CapsuleFailed{"no capsule"});
                world_.create(at);
                tell_guest(name, key, t, guest::CapsuleReady{});
            });
        case What::hold_job:
            return stage(name, key, t, delay, [=, this] { do_hold(name, key, t); });
        case What::release_job:
        case What::start_job:
            return stage(name, key, t, delay, [=, this] { do_start(name, key, t); });
        case What::ready_criu:
            return stage(name, key, t, delay, [=, this] {
                if (fails(name)) return tell_guest(name, key, t, guest::CriuFailed{"no CRIU"});
                tell_guest(name, key, t, guest::CriuReady{});
            });
        case What::send_precopy: {  // the job runs meanwhile; often there is nothing to send
            const bool few = rng_.chance(0.5);
            const Nanos rounds = takes(name, few ? 0 : 1, few ? 2 : 300, 90'000);
            return stage(name, key, t, rounds, [=, this] {
                if (fails(name))
                    return tell_guest(name, key, t, guest::DumpFailed{"no memory goes"});
                tell_guest(name, key, t, guest::SentPrecopy{});
            });
        }
        case What::dump_for_move:
        case What::dump_to_keep:
        case What::dump_to_disk: {
            const bool live = d.what == What::dump_for_move &&
                              (form_ ? *form_ != MoveForm::stop_and_copy : rng_.chance(0.6));
            const bool fenced =
                d.what == What::dump_for_move && (fenced_ ? *fenced_ : rng_.chance(0.7));
            return stage(name, key, t, delay, [=, this] {
                do_dump(name, d, t, {1 << 20, live, fenced});
            });
        }
        case What::ship: return do_ship(name, d, t);
        case What::stand: return do_stand(name, key, t);
        case What::pause: return pause(n, key, d.on);
        case What::finish_dump:
            if (d.by_owner) world_.truths[key.id].destroyed = true;
            return stage(name, key, t, delay, [=, this] { do_kill(name, key, t); });
        case What::kill_capsule:
            if (d.by_owner) world_.truths[key.id].destroyed = true;
            if (mutation_ == Mutation::killed_too_early)
                tell_guest(name, key, t, guest::CapsuleGone{});
            return stage(name, key, t, delay, [=, this] { do_kill(name, key, t); });
        case What::undo_dump:
            return stage(name, key, t, delay, [=, this] {
                thaw(at);
                world_.drop_image(at, now_);
                tell_guest(name, key, t, guest::DumpUndone{});
            });
        case What::go_on:
            return stage(name, key, t, delay, [=, this] {
                thaw(at);
                if (const auto image = world_.images.find(at); image != world_.images.end())
                    image->second.stood_until = now_;
                tell_guest(name, key, t, guest::DumpUndone{});
            });
        case What::make_place:
            if (mutation_ == Mutation::checkpoint_dropped_early)
                for (auto it = world_.images.begin(); it != world_.images.end();)
                    it = it->first.first == name && it->first.second.id == key.id
                             ? world_.images.erase(it)
                             : std::next(it);
            return stage(name, key, t, delay, [=, this] {
                const bool fails = fault(fail_chance_);
                if (fails) leave_watch_.failed(key.id, now_ + ships_again);
                if (fails) return tell_guest(name, key, t, guest::CapsuleFailed{"no place"});
                tell_guest(name, key, t, guest::CapsuleReady{});
            });
        case What::send_checkpoint: return do_send_checkpoint(name, d, t);
        case What::drop_checkpoint:  // perhaps while its capsule is being killed
            ++n.dropped_checkpoints[key];
            return world_.drop_image(at, now_);
        case What::silence: return;
        case What::keep_lease: return keep_lease(n, d);
        case What::restore:
        case What::restore_local: {
            const World::At from{name,
                                 d.what == What::restore ? key : GuestKey{key.id, d.other_epoch}};
            const Image* image = world_.complete_image(from);
            const Image taken = image ? *image : Image{};
            return stage(name, key, t, delay, [=, this] { do_restore(name, key, t, taken); });
        }
        case What::finish_restore:
            return stage(name, key, t, delay, [=, this] { do_release(name, key, t); });
        case What::remove:  // nothing calls it off
            return after(delay, [=, this, life = n.life] {
                Node& on = node(name);
                if (!on.up || on.life != life) return;
                world_.remove(at, now_);
                on.work.erase(key);
                guest::Outputs none;
                on.guest->ended(key, guest::Removed{}, none);
            });
        case What::signal: {
            const Capsule* c = world_.capsule(at);
            // a signal ends these, too
            const bool stands = c && c->job && ((c->paused && !c->frozen) || c->stood);
            if (c && (c->progressing() || stands) && d.signal == SIGKILL)
                job_exits(name, key, SIGKILL);
            return;
        }
    }
}

// Up to its program.
void Cluster::do_hold(const NodeName& name, const GuestKey& key, uint64_t t) {
    const Capsule* c = world_.capsule({name, key});
    const bool by_program = world_.truths[key.id].lacking.contains(name);
    if (!c || !c->alive || by_program || fails(name))
        return tell_guest(name, key, t, guest::JobNotStarted{2, by_program, "cannot be executed"});
    if (mutation_ == Mutation::hold_does_not_hold) {
        check_released(key, false);
        world_.start({name, key}, now_);
    }
    tell_guest(name, key, t, guest::JobHeld{});
}

void Cluster::do_start(const NodeName& name, const GuestKey& key, uint64_t t) {
    const World::At at{name, key};
    const Capsule* c = world_.capsule(at);
    const bool by_program = world_.truths[key.id].lacking.contains(name);
    if (!c || !c->alive || by_program || fails(name))
        return tell_guest(name, key, t, guest::JobNotStarted{2, by_program, "cannot be executed"});
    born_stopped(at);
    check_released(key, c->frozen);
    world_.start(at, now_);
    schedule_exit(name, key);
    tell_guest(name, key, t, guest::JobStarted{});
}

void Cluster::do_stand(const NodeName& name, const GuestKey& key, uint64_t t) {
    stage(name, key, t, ms(0, 20), [=, this] {
        const World::At at{name, key};
        const Capsule* c = world_.capsule(at);
        const bool stops = c && c->job && !fails(name);
        if (stops && mutation_ != Mutation::stands_untrue) {
            world_.freeze(at, now_);
            world_.capsule(at)->stood = true;
            ++world_.truths[key.id].stands;
        }
        counts_.stands += stops;
        tell_guest(name, key, t, guest::Stood{stops ? "" : "it does not stop"});
    });
}

// freeze, pages, whole: it may fail before each.
void Cluster::do_dump(const NodeName& name, const guest::Do& d, uint64_t t,
                      const guest::DumpHeld& held) {
    const GuestKey key = d.key;
    const World::At at{name, key};
    const bool in_ram = d.what != What::dump_to_disk, stays = d.what != What::dump_for_move;
    const auto failed = [=, this] {
        leave_watch_.failed(key.id, now_ + dumps_again);
        if (Capsule* c = world_.capsule(at)) c->let_go = now_;
        thaw(at);
        world_.drop_image(at, now_);
        tell_guest(name, key, t, guest::DumpFailed{"the dump failed"});
    };
    Capsule* c = world_.capsule(at);
    if (!c || !c->job || fails(name)) return failed();
    world_.freeze(at, now_);
    c->paused = false;  // what CRIU has is the dump's alone
    c->dumped = true;
    c->stays = false;
    tell_guest(name, key, t, guest::DumpFroze{});
    tell_guest(name, key, t, guest::DumpFroze{{}, true});
    const auto written = [=, this] {
        Capsule* now = world_.capsule(at);
        world_.make_image(at, now_, false);
        if (!now || !now->job || fails(name) || world_.truths[key.id].cannot_dump) return failed();
        world_.make_image(at, now_, true);
        if (held.live) world_.images[at].form = MoveForm::pages_first;
        world_.images[at].in_ram = in_ram;
        // A dump that is neither fenced nor made to stay may let the job go on in the end, or not:
        // both are tried.
        now->stays = held.fenced ? mutation_ != Mutation::fenced_goes_on
                                 : stays || held.live || fenced_ || rng_.chance(0.5);
        if (mutation_ == Mutation::cut_does_not_hold && stays && !in_ram)
            after(ms(5, 50), [this, at] {
                const Node& n = node(at.first);
                const GuestJob* job = n.up ? n.guest->find(at.second) : nullptr;
                if (job && job->state == GuestState::shipped) thaw(at);
            });
        guest::DumpHeld told = held;
        told.image_bytes = static_cast<int64_t>(1 + key.id.seq % 4) << 20;
        tell_guest(name, key, t, told);
    };
    // The memory of a process that has died cannot be read.
    const auto is_there = [this, at] {
        const Capsule* read = world_.capsule(at);
        return read && read->alive && read->job;
    };
    const Leave leave{node(name).life, t, held_back(d), is_there, written};
    stage(name, key, t, takes(name, 3, 500, 90'000), [=, this] { leaves(name, key, leave); });
}

// The home keeps it on its disk.
void Cluster::do_send_checkpoint(const NodeName& name, const guest::Do& d, uint64_t t) {
    const GuestKey key = d.key, to{d.key.id, d.other_epoch};
    const Image* image = world_.complete_image({name, key});
    const bool cut = fault(0.15), seen = fault(0.7);
    Image sent = image ? *image : Image{};
    sent.in_ram = false;
    const World::At there{d.dest.node, to};
    const uint64_t dropped = node(name).dropped_checkpoints[key];
    stage(name, key, t, takes(name, 2, 300, 90'000), [=, this] {
        if (node(name).dropped_checkpoints[key] != dropped) return;
        const auto failed = [=, this] {
            leave_watch_.failed(key.id, now_ + ships_again);
            tell_guest(name, key, t, guest::CheckpointFailed{"the transfer was cut"});
        };
        Node& end = node(there.first);
        if (!sent.complete || !end.up || !end.guest->takes_image_from(to, name)) return failed();
        const bool half = cut && mutation_ == Mutation::half_checkpoint_is_whole;
        if (cut && !half) {
            if (seen)
                guest_step(end, [&](Guest& g, guest::Outputs& o) {
                    g.ended(to, guest::ImageFailed{"the transfer was cut"}, o);
                });
            return failed();
        }
        world_.images[there] = sent;
        world_.images[there].complete = !half;
        guest_step(end, [&](Guest& g, guest::Outputs& o) {
            g.ended(to, guest::ImageReceived{1 << 20, MoveForm::stop_and_copy}, o);
        });
        tell_guest(name, key, t, guest::CheckpointSent{});
    });
}

// Cut: the destination knows it or not (its agent sees the connection end); or all arrived and the
// answer was lost.
void Cluster::do_ship(const NodeName& name, const guest::Do& d, uint64_t t) {
    const GuestKey key = d.key, to{d.key.id, d.other_epoch};
    const World::At at{name, key}, there{d.dest.node, to};
    const Image* image = world_.complete_image(at);
    Image sent = image ? *image : Image{};
    const bool live = sent.form != MoveForm::stop_and_copy;
    if (live && (form_ ? *form_ == MoveForm::post_copy : rng_.chance(0.5)))
        sent.form = MoveForm::post_copy;
    sent.source = name;
    sent.source_key = key;
    sent.source_life = node(name).life;
    sent.source_token = t;
    const auto failed = [=, this] {
        leave_watch_.failed(key.id, now_ + ships_again);
        tell_guest(name, key, t, guest::ShipFailed{"the transfer was cut"});
    };
    Node& dest = node(d.dest.node);
    if (!image || !dest.up || !dest.guest->takes_image_from(to, name)) return failed();
    const bool cut = std::exchange(transfer_breaks_, false) || fault(0.15),
               answer_lost = fault(0.1), seen = fault(0.7);
    const auto is_taken = [=, this, life = dest.life] {
        const Node& end = node(there.first);
        return end.up && end.life == life && end.guest->takes_image_from(to, name);
    };
    const auto whole = [=, this] {
        Node& end = node(there.first);
        if (!is_taken()) return failed();
        if (cut && mutation_ != Mutation::half_image_is_whole) {
            if (seen)
                guest_step(end, [&](Guest& g, guest::Outputs& o) {
                    g.ended(to, guest::ImageFailed{"the transfer was cut"}, o);
                });
            return failed();
        }
        world_.images[there] = sent;
        if (cut) world_.images[there].progress /= 2;
        guest_step(end, [&](Guest& g, guest::Outputs& o) {
            g.ended(to, guest::ImageReceived{1 << 20, sent.form}, o);
        });
        if (live) return;  // pages_ended
        if (answer_lost) return failed();
        tell_guest(name, key, t, guest::Shipped{});
    };
    const Leave leave{node(name).life, t, held_back(d), is_taken, whole};
    after(takes(name, 2, 300, 90'000), [=, this] { leaves(name, key, leave); });
}

// Says whether the memory of a frozen job can be read to its end: the job has not gone on, and its
// daemon has not ended since.
bool Cluster::pages_come(const Image& image) {
    const Capsule* c = world_.capsule({image.source, image.source_key});
    const Node& source = node(image.source);
    return source.up && source.life == image.source_life && c && c->alive && c->job && c->frozen &&
           c->base == image.progress && !std::exchange(transfer_breaks_, false) && !fault(0.1);
}

void Cluster::pages_ended(const Image& image, bool came) {
    const Node& source = node(image.source);
    const GuestKey key = image.source_key;
    if (!source.up || source.life != image.source_life) return;
    if (fault(0.1)) return leave_watch_.failed(key.id, now_ + ships_again);
    if (came) return tell_guest(image.source, key, image.source_token, guest::Shipped{});
    leave_watch_.failed(key.id, now_ + ships_again);
    tell_guest(image.source, key, image.source_token, guest::ShipFailed{"the transfer was cut"});
}

// (By value: parts of it come later.)
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Cluster::do_restore(const NodeName& name, const GuestKey& key, uint64_t t, Image image) {
    const World::At at{name, key};
    const Capsule* c = world_.capsule(at);
    const bool fail = !image.complete || fails(name);
    if (!c || !c->alive) return;  // its end is told already
    if (fail) {                   // half a tree was made and killed: PID 1 reaps it
        if (rng_.chance(0.5)) tell_guest(name, key, t, guest::Exited{9, ""});
        return tell_guest(name, key, t, guest::RestoreFailed{"the restore failed"});
    }
    const auto held = [=, this] {
        const Capsule* there = world_.capsule(at);
        if (!there || !there->alive) return;
        world_.restore(at, image);
        if (mutation_ == Mutation::restore_does_not_hold) {
            world_.release(at, now_);
            schedule_exit(name, key);
        }
        tell_guest(name, key, t, guest::RestoreHeld{});
    };
    if (image.form == MoveForm::stop_and_copy) return held();
    if (image.form == MoveForm::post_copy) held();
    after(takes(name, 1, 300, 60'000), [=, this, life = node(name).life] {
        Node& n = node(name);
        const auto work = n.work.find(key);
        const bool here = n.up && n.life == life && work != n.work.end() && work->second == t;
        const Capsule* copy = world_.capsule(at);  // the memory of a dead one takes no page
        const bool came = here && copy && copy->alive && pages_come(image);
        pages_ended(image, came);
        if (!here) return;
        if (!came && mutation_ != Mutation::lost_pages_unseen)
            return guest_step(n, [&](Guest& g, guest::Outputs& o) {
                g.ended(key, guest::PagesLost{"no more pages came"}, o);
            });
        if (image.form == MoveForm::pages_first) return held();
        if (Capsule* filled = came ? world_.capsule(at) : nullptr) filled->pages_in = true;
        guest_step(n, [&](Guest& g, guest::Outputs& o) { g.ended(key, guest::PagesWhole{}, o); });
    });
}

void Cluster::do_release(const NodeName& name, const GuestKey& key, uint64_t t) {
    const World::At at{name, key};
    Capsule* c = world_.capsule(at);
    if (!c || !c->job || fails(name)) {
        if (c && c->job) {
            world_.kill_job(at, now_);
            if (rng_.chance(0.5)) tell_guest(name, key, t, guest::Exited{9, ""});
        }
        return tell_guest(name, key, t, guest::RestoreFailed{"the restore failed late"});
    }
    if (mutation_ == Mutation::told_before_it_runs && rng_.chance(0.1)) {
        tell_guest(name, key, t, guest::RestoreRunning{});
        return after(ms(0, 20), [=, this] { world_.kill_job(at, now_); });
    }
    born_stopped(at);
    if (c->restored) world_.release(at, now_);
    schedule_exit(name, key);
    tell_guest(name, key, t, guest::RestoreRunning{});
}

// CRIU kills only what it dumped, then the capsule is ended; what PID 1 reaped is told before that.
void Cluster::do_kill(const NodeName& name, const GuestKey& key, uint64_t t) {
    const World::At at{name, key};
    world_.kill_job(at, now_);
    stage(name, key, t, ms(0, 10), [=, this] {
        const Capsule* c = world_.capsule(at);
        const bool exited = c && c->exited;
        const int32_t status = exited ? c->status : 0;
        world_.kill_capsule(at, now_);
        if (mutation_ == Mutation::killed_too_early) return;
        if (exited) tell_guest(name, key, t, guest::Exited{status, ""});
        stage(name, key, t, ms(3, 5), [=, this] {
            guest_step(node(name),
                       [=](Guest& g, guest::Outputs& o) { g.ended(key, guest::CapsuleGone{}, o); });
        });
    });
}

// The job ends when its work is done, wherever it is then.
void Cluster::schedule_exit(const NodeName& name, const GuestKey& key) {
    const Capsule* c = world_.capsule({name, key});
    if (!c || !c->progressing()) return;
    const int64_t left = world_.truths[key.id].work - c->base;
    after(Nanos{std::max<int64_t>(left, 0)} - (now_ - c->since), [this, name, key, run = c->run] {
        const Capsule* on = world_.capsule({name, key});
        if (on && on->progressing() && on->run == run)
            job_exits(name, key, static_cast<int32_t>(key.id.seq % 7) << 8);
    });
}

void Cluster::job_exits(const NodeName& name, const GuestKey& key, int32_t status) {
    const World::At at{name, key};
    say("  on ", name, " ", key, " exits with ", static_cast<uint64_t>(status));
    world_.exit(at, status, now_);
    tell_exit(name, key, status);
}

void Cluster::tell_exit(const NodeName& name, const GuestKey& key, int32_t status) {
    const Node& n = node(name);
    after(ms(0, 3), [=, this, life = n.life] {
        Node& on = node(name);
        if (on.up && on.life == life)
            guest_step(on, [=](Guest& g, guest::Outputs& o) {
                g.ended(key, guest::Exited{status, ""}, o);
            });
    });
}

void Cluster::kill_pid1(const NodeName& name, const GuestKey& key) {
    const World::At at{name, key};
    const Capsule* c = world_.capsule(at);
    // a death of that moment looks as the one that was decided
    if (!c || !c->alive || c->unwatched) return;
    say("  on ", name, " PID 1 of ", key, " is killed");
    // its last words, if any
    const std::optional<int32_t> reaped = c->exited ? std::optional(c->status) : std::nullopt;
    world_.destroy(at, now_);
    Node& n = node(name);
    after(ms(0, 3), [=, this, life = n.life] {
        Node& on = node(name);
        if (!on.up || on.life != life) return;
        guest_step(on, [=](Guest& g, guest::Outputs& o) {
            if (reaped) g.ended(key, guest::Exited{*reaped, ""}, o);
            g.ended(key, guest::CapsuleGone{}, o);
        });
    });
}

}  // namespace souk::sim
