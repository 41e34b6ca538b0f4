// SPDX-License-Identifier: GPL-2.0-or-later
// The shell of one simulated daemon: see cluster.hpp. What a real shell owes the machines is
// written here.
#include <array>

#include "agentd/core/home_records.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/check.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

Cluster::Node& Cluster::node(const NodeName& name) {
    const auto it = nodes_.find(name);
    MUST(it != nodes_.end());
    Node& n = it->second;
    if (!std::exchange(n.changed, true)) changed_.push_back(&n);
    return n;
}

WallTime Cluster::wall() const {
    const int64_t s = now_.ns / 1'000'000'000;
    return {s, static_cast<int32_t>(s % week_s)};
}

// Starts the daemon with its records on disk and the capsules that are found. A capsule without a
// record is removed first.
void Cluster::boot(Node& n) {
    n.up = true;
    ++n.life;
    say(n.name, " starts");
    n.home = std::make_unique<Home>(n.name, limits_);
    const bool asks = mutation_ != Mutation::tickets_unchecked;
    n.guest = std::make_unique<Guest>(
        4096, true, policy_, GuestTickets{n.name, asks ? TicketRule::required : TicketRule::none});
    open_journal(n);
    const auto mark = n.disk.rows.find({"ticket", "mark"});
    n.mark_found = mark == n.disk.rows.end() ? 0 : std::stoull(mark->second);
    if (mutation_ != Mutation::ticket_mark_lost) n.guest->restore_mark(n.mark_found);
    std::optional<ProviderRecord> kept;
    if (const auto row = n.disk.rows.find({"provider", "record"}); row != n.disk.rows.end())
        kept = wire::unpack<ProviderRecord>(row->second).value();
    ProviderRecord file;
    if (size_.booked) file.cpus = 4, file.memory_mb = 8000;
    auto made = Provider::create(
        n.name, Hardware{4, 8000, {"x86_64", "6.18", "4.2", 4096, "fpu sse2"}}, file, kept);
    MUST(made.has_value());
    n.provider.emplace(std::move(*made));
    if (tracing_) {
        n.trace = std::make_unique<NodeTrace>(*this, n.name);
        n.home->tell_to(n.trace.get());
        n.guest->tell_to(n.trace.get());
        n.provider->tell_to(n.trace.get());
    }
    boot_owner(n);
    for (auto& [at, c] : world_.capsules.on(n.name)) c.unwatched = false;
    const auto records = guest_records(n);
    std::vector<World::At> leftovers;
    for (const auto& [at, c] : world_.capsules.on(n.name))
        if (!records.contains(at.second)) leftovers.push_back(at);
    for (const auto& [at, i] : world_.images.on(n.name))
        if (!records.contains(at.second)) leftovers.push_back(at);
    for (const auto& at : leftovers) world_.remove(at, now_);
    if (mutation_ == Mutation::thaw_on_restart)
        for (const auto& [key, job] : records) world_.thaw({n.name, key}, now_);

    const uint64_t life = n.life;
    provider_step(n, [&](Provider& p, provider::Outputs& out) { p.started(wall(), out); });
    if (n.up && n.life == life) bound_guests(n);
    for (const auto& entry : records) {
        if (!n.up || n.life != life) return;
        const auto& job = entry.second;
        const Guest::Found f = found(n, job);
        guest_step(n, [&](Guest& g, guest::Outputs& out) {
            g.recovered(job, f, out);
            const Capsule* c = world_.capsule({n.name, job.key});
            if (c && c->until > Nanos{}) g.ended(job.key, guest::LeaseFound{c->until}, out);
        });
        if (const Capsule* c = world_.capsule({n.name, entry.first});
            n.up && c && c->until > Nanos{})
            deadline(n.name, entry.first, c->until);
        if (f.exited && f.capsule_alive) tell_exit(n.name, entry.first, f.wait_status);
    }
    if (!n.up || n.life != life) return;
    for (const HomeJob& job : home_records(n)) {
        if (const Status sound = HomeRecords::sound(job); !sound)
            world_.fail(job.id, "would be set aside: " + sound.error().message);
        n.home->load(job);
    }
    home_step(n, [&](Home& h, home::Outputs& out) { h.restarted(now_, out); });
    if (!n.up || n.life != life) return;
    // The capsule of a job that ended while nobody watched tells that again. A running job may end
    // from now on.
    connect_market(n);
    if (n.up && n.life == life) find_presence(n);
}

Guest::Found Cluster::found(Node& n, const GuestJob& job) {
    Guest::Found f;
    const World::At at{n.name, job.key};
    const Image* image = world_.complete_image(at);
    f.image_complete = image && image->form == MoveForm::stop_and_copy;
    const auto it = world_.capsules.find(at);
    if (it == world_.capsules.end()) return f;
    Capsule& c = it->second;
    f.capsule_alive = c.alive;
    f.job_alive = c.job;
    f.held_by_dump = c.job && (c.frozen || c.paused);
    f.lapsed = f.held_by_dump && c.lapsed;
    f.paused = c.job && c.paused;
    if (f.paused) n.paused.insert(job.key);
    // A paused job with a lease does not go on before its home has answered. Without a lease it is
    // like a running one.
    if (f.paused && !f.lapsed && !job.in_place) {
        f.held_by_dump = f.lapsed = job.spec.lease.ns > 0;
        // The owner and the lease stop the job by one control group. From here on only the owner
        // does.
        if (!f.lapsed) c.frozen = c.stood = false;
    }
    c.frozen = c.frozen || f.held_by_dump;
    c.stood = c.stood || (f.held_by_dump && job.in_place);
    f.exited = c.exited && mutation_ != Mutation::lose_exit_status;
    f.wait_status = c.status;
    return f;
}

// A job that a dump has stopped goes on when CRIU dies. It stays stopped if its control group holds
// it, if a lease has stopped it, or if a record on disk says that it is to die.
void Cluster::criu_dies_with(const Node& n) {
    std::vector<World::At> go_on;
    const auto records = guest_records(n);
    for (const auto& [at, c] : world_.capsules.on(n.name)) {
        const auto record = records.find(at.second);
        const bool dies = record != records.end() && record->second.state == GuestState::frozen;
        if (c.job && c.frozen && c.dumped && !c.stays && !c.lapsed && !dies) go_on.push_back(at);
    }
    for (const auto& at : go_on) {
        thaw(at);
        world_.capsule(at)->unwatched = true;
    }
}

// The daemon dies. CRIU notices that: a restored copy that it holds dies with it, and a dumped job
// that a control group holds stays frozen.
void Cluster::crash(Node& n) {
    if (!n.up) return;
    ++counts_.crashes;
    say(n.name, " crashes");
    n.up = false;
    ++n.life;
    n.home.reset();
    n.guest.reset();
    n.provider.reset();
    n.tick_at = n.guest_tick_at = Nanos::never();
    disconnect_market(n);
    n.work.clear();
    n.paused.clear();
    n.use_at = n.return_at = n.frame_at = Nanos::never();
    promises_.gone(n.name);
    leave_watch_.gone(n.name, now_);
    leave_watch_.trouble(n.name, now_ + Nanos::from_s(5));
    n.sends.clear();
    n.journal.reset();
    n.goes_back.clear();
    n.back_when_durable.clear();
    n.disk.crash();
    std::vector<World::At> held;
    for (const auto& [at, c] : world_.capsules.on(n.name))
        if (c.restored) held.push_back(at);
    for (const auto& at : held) world_.kill_job(at, now_);
    criu_dies_with(n);
    for (auto& [guest, l] : n.links) {  // what it sent is still on its way
        l.state = Link::State::down;
        l.home_gen = 0;
        l.queue.clear();
        guest_notices(n.name, guest, ms(10, 10'000));
    }
    for (auto& [home, other] : nodes_) {
        const auto l = other.links.find(n.name);
        if (l == other.links.end()) continue;
        l->second.guest_gen = 0;
        if (home != n.name && l->second.state == Link::State::up) break_link(home, n.name);
    }
    const NodeName name = n.name;
    after(outage_   ? *outage_
          : faults_ ? ms(10, 5000)
                    : ms(10, 100),
          [this, name] {
              if (!node(name).dead && !node(name).up) boot(node(name));
          });
}

void Cluster::persist_home(Node& n, home::Output& o) {
    if (auto* p = std::get_if<home::Persist>(&o)) {
        if (mutation_ == Mutation::skip_commit_persist &&
            (p->job.step == MoveStep::kill_old || p->job.step == MoveStep::release))
            return;
        HomeJob& job = p->job;
        if (mutation_ == Mutation::forget_checkpoint) job.checkpoint = {};
        if (size_.booked) ends_by_limit(job);
        if (job.phase == JobPhase::finished) check_checkpoint(n, job);
        counts_.checkpoints += job.checkpoint.epoch.n > 0 && job.checkpoint.epoch == job.last_epoch;
        if (mutation_ == Mutation::reuse_epoch && job.last_epoch.n > 1 &&
            job.last_epoch != job.epoch)
            --job.last_epoch.n;
        n.journal->put("home", std::to_string(job.id.seq), wire::pack(job), p->when);
        if (const auto back = n.goes_back.extract(job.id))
            n.back_when_durable.insert_or_assign(job.id, back.mapped());
        check_gang(job);
        note_evacuated(n, job);
        if (job.phase == JobPhase::finished) check_end(job);
    } else if (const auto* e = std::get_if<home::Erase>(&o)) {
        n.journal->erase("home", std::to_string(e->id.seq), Durable::now);
    }
}

// A job that had a checkpoint cannot be lost with its node.
void Cluster::check_checkpoint(const Node& n, const HomeJob& job) {
    const auto before = home_record(n, job.id);
    const Truth& t = world_.truths[job.id];
    if (!before || t.ended || t.cancelled || before->phase == JobPhase::finished) return;
    const Checkpoint& c = before->checkpoint;
    if (c.epoch.n > 0 && world_.complete_image({c.at.node, {job.id, c.epoch}}) &&
        before->epoch != c.epoch)
        world_.fail(job.id, "is called lost, and there is a checkpoint of it");
}

// From now on nothing else of the job is needed, also if its home ends before it has said so.
void Cluster::goes_back(const HomeJob& job) {
    const Checkpoint& c = job.checkpoint;
    const World::At checkpoint{c.at.node, {job.id, c.epoch}};
    say("  job ", job.id.text(), " goes back");
    world_.go_back(job.id, c.epoch.n == 0 ? nullptr : &checkpoint);
}

void Cluster::gone_back(Node& n, const JobId& id) {
    const HomeJob* job = n.home->find(id);
    if (!job || !job->splice.due) return;
    const uint64_t none[2] = {0, 0};
    home_step(n, [&](Home& h, home::Outputs& out) { h.spliced(id, none, 0, {}, now_, out); });
}

// Compares the end of the job in its home's record with what really happened.
void Cluster::check_end(const HomeJob& job) {
    const Truth& t = world_.truths[job.id];
    if (world_.progressing(job.id)) return world_.fail(job.id, "is called finished while it runs");
    if (t.ended) {
        if (job.wait_status != *t.ended)
            world_.fail(job.id, "ended with status " + std::to_string(*t.ended) +
                                    ", its home node says " + std::to_string(job.wait_status) +
                                    " (" + job.why + ")");
        return;
    }
    const bool by_program = t.given_up && job.wait_status == 127 << 8;
    if (!t.cancelled && !t.destroyed && !by_program)
        world_.fail(job.id, "is called finished (" + job.why + ", status " +
                                std::to_string(job.wait_status) + ") but it did not end");
}

void Cluster::home_step(Node& n, const std::function<void(Home&, home::Outputs&)>& step) {
    if (!n.up || !world_.failure.empty()) return;
    home::Outputs out;
    if (size_.booked) n.home->set_unix_time(now_);
    step(*n.home, out);
    leases_are_over(n);
    n.home->free_memory(free_memory());
    n.home->free_disk(free_disk());
    const Nanos next = n.home->tick(now_, out);
    check_wakes(n);
    check_evacuations(n);
    for (home::Output& o : out) persist_home(n, o);
    for (const home::Output& o : out) {
        say_home(n, o);
        if (!n.up) return;
    }
    arm(n);
    keep_connected(n);
    if (watch_) watch_();
    if (next < n.tick_at || n.tick_at <= now_) {
        n.tick_at = next;
        schedule_tick(n);
    }
}

// A message leaves on the connection that is open now, or waits for one.
void Cluster::say_home(Node& n, const home::Output& o) {
    if (const auto* m = std::get_if<home::ToGuest>(&o)) {
        const GuestCommand& c = m->command;
        if (mutation_ == Mutation::longer_lease) {
            GuestCommand longer = c;
            longer.spec.lease += c.spec.lease;
            command_leaves(n, m->peer, longer);
        } else {
            command_leaves(n, m->peer, c);
        }
        if (mutation_ == Mutation::image_dropped_early && c.verb == GuestVerb::checkpoint)
            drop_too_early(n, c);
        if (mutation_ == Mutation::release_with_commit && m->command.verb == GuestVerb::commit) {
            const HomeJob* job = n.home->find(m->command.id);
            if (job && job->step == MoveStep::kill_old) {
                GuestCommand release = m->command;
                release.verb = GuestVerb::release;
                release.epoch = job->to_epoch;
                command_leaves(n, job->to, release);
            }
        }
    }
    if (const auto* a = std::get_if<home::Answer>(&o))
        let_go(n, [this, &n, a = *a, gen = link(n, a->node).home_gen] {
            const Link& l = link(n, a.node);
            if (l.state == Link::State::up && l.home_gen == gen) transmit(n, a.node, a.heartbeat);
        });
    if (const auto* back = std::get_if<home::GoneBack>(&o))
        let_go(n, [this, &n, id = back->id] { gone_back(n, id); });
    const auto* m = std::get_if<home::ToMarketMsg>(&o);
    const auto* refused = m ? std::get_if<OrderFailed>(&m->message) : nullptr;
    if (refused && !nodes_.contains(refused->node))
        world_.fail(refused->id, "an order failed and no node is named");
    const bool heard = m && (size_.booked || std::holds_alternative<JobReport>(m->message));
    if (heard && n.market_up) market_leaves(n, m->message);
}

void Cluster::command_leaves(Node& n, const Peer& peer, const GuestCommand& command) {
    const Link& l = link(n, peer.node);
    const uint64_t gen = l.state == Link::State::up ? l.home_gen : 0;
    let_go(n, [this, &n, peer, command, gen] {
        if (gen == 0 || link(n, peer.node).home_gen == gen) return to_guest(n, peer, command);
        say("  lost with its connection: ", n.name, " -> ", peer.node, " ",
            to_string(command.verb));
    });
}

void Cluster::market_leaves(Node& n, const ToMarket& message) {
    let_go(n, [this, &n, message, gen = n.market_gen] {
        if (n.market_gen != gen) return;
        n.last_to_market = std::max(n.last_to_market + Nanos{1}, now_ + ms(0, 5));
        after(n.last_to_market - now_, [this, name = n.name, gen, message] {
            if (node(name).market_gen != gen) return;
            if (const auto* report = std::get_if<JobReport>(&message)) return market_hears(*report);
            book_.hears(name, message, now_);
            if (const auto* offer = std::get_if<ProviderReport>(&message))
                booked_.offers(name, offer, now_);
            book_step();
        });
    });
}

void Cluster::schedule_tick(Node& n) {
    if (n.tick_at == Nanos::never()) return;
    const Nanos at = std::max(n.tick_at, now_ + Nanos{1});
    after(at - now_, [this, name = n.name, life = n.life, asked = n.tick_at] {
        Node& on = node(name);
        if (on.up && on.life == life && on.tick_at == asked) {
            on.tick_at = Nanos::never();
            home_step(on, [](Home&, home::Outputs&) {});
        }
    });
}

void Cluster::persist_guest(Node& n, guest::Output& o) {
    if (auto* p = std::get_if<guest::Persist>(&o)) {
        if (mutation_ == Mutation::skip_frozen_persist && p->job.state == GuestState::frozen)
            return;
        GuestJob& job = p->job;
        if (mutation_ == Mutation::filling_is_running && job.state == GuestState::filling)
            job.state = GuestState::held;
        n.journal->put("guest", job.key.text(), wire::pack(job), p->when);
    } else if (const auto* e = std::get_if<guest::Erase>(&o)) {
        // its directory is gone: nothing comes of it
        n.journal->erase("guest", e->key.text());
    } else if (const auto* m = std::get_if<guest::KeepMark>(&o)) {
        n.journal->put("ticket", "mark", std::to_string(m->mark), m->when);
    }
}

void Cluster::guest_step(Node& n, const std::function<void(Guest&, guest::Outputs&)>& step) {
    if (!n.up || !world_.failure.empty()) return;
    guest::Outputs out;
    (void)n.guest->tick(local(n), out);
    step(*n.guest, out);
    const Nanos next = n.guest->tick(local(n), out);
    for (guest::Output& o : out) persist_guest(n, o);
    // Effects begin after the commit, before its words are on the wire, or after.
    for (const bool doing : fault(0.2) ? std::array{true, false} : std::array{false, true})
        for (const guest::Output& o : out) {
            const auto* m = std::get_if<guest::ToHome>(&o);
            const auto* d = std::get_if<guest::Do>(&o);
            if (m && !doing) say_guest(n, *m);
            if (d && doing) let_go(n, [this, &n, d = *d] { effect(n, d); });
        }
    see_return(n);
    arm(n);
    if (watch_) watch_();
    schedule_guest_tick(n, next);
}

void Cluster::say_guest(Node& n, const guest::ToHome& m) {
    const auto* e = std::get_if<GuestEvent>(&m.message);
    const Capsule* stands =
        e && e->in_place ? world_.capsule({n.name, {e->id, e->epoch}}) : nullptr;
    if (stands && stands->progressing())
        world_.fail(e->id, "is said to stand where it is, and runs");
    const Capsule* c = e ? world_.capsule({n.name, {e->id, e->epoch}}) : nullptr;
    if (c && c->progressing() && !e->paused.empty() && n.paused.contains({e->id, e->epoch}))
        world_.fail(e->id, "is said to stand for the owner of " + n.name + ", and runs");
    const bool killed =
        mutation_ == Mutation::retained_is_killed && e && e->state == GuestState::retained;
    if (m.after_erase && n.journal->erases_wait())
        return n.journal->after_erases([this, &n, m] {
            const auto* event = std::get_if<GuestEvent>(&m.message);
            // it has come since, and that has been told
            if (!event || !n.guest->find({event->id, event->epoch})) to_home(n, m.home, m.message);
        });
    n.journal->then([this, &n, m, killed, gen = link(m.home, n.name).guest_gen] {
        if (killed) {
            const auto& event = std::get<GuestEvent>(m.message);
            world_.kill_capsule({n.name, {event.id, event.epoch}}, now_);
        }
        if (link(m.home, n.name).guest_gen == gen) to_home(n, m.home, m.message);
    });
}

}  // namespace souk::sim
