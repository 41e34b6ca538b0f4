// SPDX-License-Identifier: GPL-2.0-or-later
// Sequences of well-formed messages that lie: a guest and a market to a home, a home to a guest.
// Nothing that a peer says ends the machine; each record and message that comes of it can be read
// back; and no job is touched that the liar does not have. SOUK_LIES=N: so many seeds of
// each, from SOUK_LIES_FROM on.
#include <cstdlib>

#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "agentd/core/record_fields.hpp"
#include "agentd/store/records.hpp"
#include "tests/unit/seeds.hpp"
#include "tests/unit/unit.hpp"
#include "tests/unit/wire_samples.hpp"

using namespace souk;

namespace {

const NodeName liar = "n9", home_node = "n1", honest[] = {"n1", "n2", "n3"};
constexpr int steps = 120;

template <class T>
void check_readable(uint64_t seed, const char* what, const T& value) {
    const std::string bytes = wire::pack(value);
    const auto back = wire::unpack<T>(bytes);
    ck_assert_msg(back.has_value(), "seed %lu: %s: %s", static_cast<unsigned long>(seed), what,
                  back ? "" : back.error().message.c_str());
}

// -------------------------------------------------------------------------------------------------
// a home

struct LiedHome {
    uint64_t seed;
    Rng rng;
    std::unique_ptr<Home> home;
    std::map<uint64_t, std::string> disk;
    std::vector<std::pair<NodeName, GuestCommand>> told;  // honest nodes
    Nanos now = Nanos::from_s(100);
    uint64_t order_seq = 0;

    explicit LiedHome(uint64_t s) : seed(s), rng(s) { start(); }

    void start() {
        Home::Limits limits;
        limits.finished_max = 3;
        limits.checkpoint_every = Nanos::from_s(60);
        limits.address = "n1:1";
        home = std::make_unique<Home>(home_node, limits);
        for (const auto& [seq, bytes] : disk) {
            auto job = wire::unpack<HomeJob>(bytes);
            ck_assert(job.has_value());
            const Status sound = HomeRecords::sound(*job);
            ck_assert_msg(sound.has_value(), "seed %lu: %s", static_cast<unsigned long>(seed),
                          sound ? "" : sound.error().message.c_str());
            home->load(std::move(*job));
        }
        told.clear();
        step([&](home::Outputs& out) { home->restarted(now, out); });
    }

    template <class F>
    void step(F f) {
        home::Outputs out;
        home->set_unix_time(now + Nanos::from_s(1'700'000'000));
        f(out);
        for (const home::Output& o : out) look(o);
    }

    void look(const home::Output& o) {
        if (const auto* p = std::get_if<home::Persist>(&o)) {
            check_readable(seed, "HomeJob", p->job);
            disk[p->job.id.seq] = wire::pack(p->job);
        } else if (const auto* e = std::get_if<home::Erase>(&o)) {
            disk.erase(e->id.seq);
        } else if (const auto* m = std::get_if<home::ToMarketMsg>(&o)) {
            const auto back =
                wire::unpack_to_market(wire::type_of(m->message), wire::pack(m->message));
            ck_assert_msg(back.has_value(), "seed %lu: to the market: %s",
                          static_cast<unsigned long>(seed),
                          back ? "" : back.error().message.c_str());
        } else if (const auto* g = std::get_if<home::ToGuest>(&o)) {
            check_readable(seed, "GuestCommand", g->command);
            if (g->peer.node != liar) told.emplace_back(g->peer.node, g->command);
        }
    }

    const HomeJob* any_job() {
        const auto& jobs = home->jobs();
        if (jobs.empty()) return nullptr;
        return &std::next(jobs.begin(), static_cast<ptrdiff_t>(rng.below(jobs.size())))->second;
    }

    void submit() {
        const auto one = [&](const JobTies& ties) -> uint64_t {
            Submission s;
            s.spec = unit::sample<wire::Submit>(rng).spec;
            s.spec.net = NetMode::host;
            s.spec.tcp = TcpPolicy::close;
            s.spec.launch.uid = 1'000 + static_cast<uint32_t>(rng.below(3));
            s.terms.max_price = Money::units(1);
            s.terms.memory_mb = rng.chance(0.5) ? 100 : 0;
            s.group = ties;
            uint64_t seq = 0;
            step([&](home::Outputs& out) {
                if (const auto id = home->submit(std::move(s), now, out)) seq = id->seq;
            });
            return seq;
        };
        JobTies ties;
        if (rng.chance(0.7)) {
            one(ties);
            return;
        }
        ties.components = 2;
        ties.gang = one(ties);
        ties.component = 1;
        one(ties);
    }

    void order() {
        const HomeJob* const job = any_job();
        if (!job) return;
        Order o = unit::sample<Order>(rng);
        o.id = job->id;
        if (rng.chance(0.95)) {  // else: as a market that lies
            const NodeName all[] = {"n1", "n2", "n3", liar};
            o.seq = ++order_seq;
            o.kind = rng.chance(0.6) ? Order::Kind::run : Order::Kind::suspend;
            o.node = o.kind == Order::Kind::run ? all[rng.below(4)] : NodeName();
            o.address = o.node.empty() ? "" : o.node + ":1";
            o.hold = o.layouts = o.near = true;
            o.ticket.clear();
        }
        step([&](home::Outputs& out) { home->order(o, now, out); });
    }

    // An honest node does what the oldest command says.
    void answer() {
        if (told.empty()) return;
        const auto [node, c] = told.front();
        told.erase(told.begin());
        GuestEvent e;
        e.id = c.id;
        e.epoch = c.epoch;
        NodeName from = node;
        switch (c.verb) {
            case GuestVerb::start:
                e.state = c.spec.hold ? GuestState::held : GuestState::running;
                break;
            case GuestVerb::prepare:
            case GuestVerb::keep: e.state = GuestState::prepared; break;
            case GuestVerb::prepare_dump: e.state = GuestState::dump_ready; break;
            case GuestVerb::freeze:
            case GuestVerb::commit: e.state = GuestState::frozen; break;
            case GuestVerb::resume:
            case GuestVerb::release: e.state = GuestState::running; break;
            case GuestVerb::kill: e.state = GuestState::killed; break;
            case GuestVerb::drop: e.state = GuestState::unknown; break;
            case GuestVerb::ship:
            case GuestVerb::restore_here:
            case GuestVerb::checkpoint:
                e.state = c.verb == GuestVerb::checkpoint ? GuestState::frozen : GuestState::held;
                e.epoch = c.new_epoch;
                from = c.verb == GuestVerb::restore_here ? node : c.dest;
                if (from == liar) return;
                break;
            case GuestVerb::query:
            case GuestVerb::signal: return;
        }
        e.cpu_time = Nanos::from_s(1);
        e.heard = now;
        step([&](home::Outputs& out) { home->guest_event(from, e, now, out); });
    }

    static bool has(const HomeJob& job, const NodeName& node) {
        for (const NodeName* at : {&job.at.node, &job.to.node, &job.saving.peer.node,
                                   &job.evacuation.peer.node, &job.checkpoint.at.node})
            if (*at == node) return true;
        return std::ranges::any_of(job.orphans,
                                   [&](const Orphan& r) { return r.peer.node == node; });
    }

    void lie() {
        std::map<uint64_t, HomeJob> others;
        for (const auto& [seq, job] : home->jobs())
            if (!has(job, liar) && job.group.components == 0) others.emplace(seq, job);
        const HomeJob* const job = any_job();
        const JobId id = job && rng.chance(0.95) ? job->id : unit::sample<Expel>(rng).id;
        Epoch epoch = unit::sample<Expel>(rng).epoch;
        if (job && rng.chance(0.8)) {
            const Epoch all[] = {job->epoch, job->to_epoch, job->saving.epoch,
                                 job->checkpoint.epoch, job->evacuation.epoch};
            epoch = all[rng.below(5)];
        }
        step([&](home::Outputs& out) {
            if (rng.chance(0.05)) return home->expel(liar, {id, epoch}, now, out);
            if (rng.chance(0.05))
                return home->heartbeat(liar, unit::sample<Heartbeat>(rng), now, out);
            if (rng.chance(0.05)) return home->guest_up(liar, now, out);
            GuestEvent e = unit::sample<GuestEvent>(rng);
            e.id = id;
            e.epoch = epoch;
            e.state =
                static_cast<GuestState>(rng.between(1, static_cast<int>(GuestState::filling)));
            e.heard = now;
            if (rng.chance(0.3)) e.why.clear();
            if (job && rng.chance(0.3)) e.held_for = job->to_epoch;
            home->guest_event(liar, e, now, out);
        });
        for (auto& [seq, before] : others) {
            const auto after = home->jobs().find(seq);
            if (after == home->jobs().end()) continue;  // an old one is forgotten
            before.orphans = after->second.orphans;
            ck_assert_msg(before == after->second, "seed %lu: job %lu was touched: %s",
                          static_cast<unsigned long>(seed), static_cast<unsigned long>(seq),
                          changed_fields(before, after->second).c_str());
        }
    }

    void user() {
        const HomeJob* const job = any_job();
        if (!job) return;
        const JobId id = job->id;
        step([&](home::Outputs& out) {
            if (rng.chance(0.3)) return (void)home->cancel(id, now, out);
            if (rng.chance(0.3)) return (void)home->signal(id, 15, out);
            if (rng.chance(0.3)) {
                JobNote note = unit::sample<JobNote>(rng);
                note.id = id;
                return home->note(note, now, out);
            }
            const uint64_t ends[2] = {rng.below(1'000), rng.below(1'000)};
            home->spliced(id, ends, rng.below(1'000), "", now, out);
        });
    }

    void run() {
        for (int i = 0; i < steps; ++i) {
            const uint64_t dice = rng.below(100);
            if (dice < 8)
                submit();
            else if (dice < 25)
                order();
            else if (dice < 50)
                answer();
            else if (dice < 85)
                lie();
            else if (dice < 90)
                user();
            else if (dice < 91)
                start();
            else if (dice < 92)
                step([&](home::Outputs& out) { home->node_lost(liar, now, out); });
            else {
                now += Nanos::from_ms(rng.between(1, 100'000));
                step([&](home::Outputs& out) { (void)home->tick(now, out); });
            }
        }
        start();
    }
};

// -------------------------------------------------------------------------------------------------
// a guest

struct LiedGuest {
    uint64_t seed;
    Rng rng;
    std::unique_ptr<Guest> guest;
    std::map<GuestKey, std::string> disk;
    std::vector<guest::Do> effects;
    Nanos now = Nanos::from_s(100);

    explicit LiedGuest(uint64_t s) : seed(s), rng(s) { start(); }

    void start() {
        guest = std::make_unique<Guest>(8);
        effects.clear();
        for (const auto& [key, bytes] : disk) {
            auto job = wire::unpack<GuestJob>(bytes);
            ck_assert(job.has_value());
            Guest::Found found;
            found.capsule_alive = rng.chance(0.5);
            found.job_alive = found.capsule_alive && rng.chance(0.7);
            found.image_complete = rng.chance(0.5);
            found.held_by_dump = found.job_alive && rng.chance(0.2);
            step([&](guest::Outputs& out) { guest->recovered(std::move(*job), found, out); });
        }
    }

    template <class F>
    void step(F f) {
        guest::Outputs out;
        f(out);
        for (const guest::Output& o : out) {
            if (const auto* p = std::get_if<guest::Persist>(&o)) {
                check_readable(seed, "GuestJob", p->job);
                disk[p->job.key] = wire::pack(p->job);
            } else if (const auto* e = std::get_if<guest::Erase>(&o)) {
                disk.erase(e->key);
            } else if (const auto* t = std::get_if<guest::ToHome>(&o)) {
                if (const auto* event = std::get_if<GuestEvent>(&t->message))
                    check_readable(seed, "GuestEvent", *event);
            } else if (const auto* d = std::get_if<guest::Do>(&o)) {
                effects.push_back(*d);
            }
        }
    }

    JobId id(const NodeName& home) { return {home, 1 + rng.below(3)}; }

    void command(const NodeName& from) {
        GuestCommand c = unit::sample<GuestCommand>(rng);
        c.id = id(rng.chance(0.8) ? from : NodeName(honest[0]));
        c.epoch = {1 + rng.below(4)};
        c.new_epoch = {c.epoch.n + 1 + rng.below(2)};
        c.verb = static_cast<GuestVerb>(rng.between(1, static_cast<int>(GuestVerb::checkpoint)));
        if (rng.chance(0.3)) c.verb = GuestVerb::start;
        if (c.spec.launch.argv.empty()) c.spec = unit::sample<wire::Submit>(rng).spec;
        if (rng.chance(0.5)) c.spec.lease = {};
        std::map<GuestKey, GuestJob> others;
        for (const auto& [key, entry] : guest->all())
            if (key.id.home != from) others.emplace(key, entry.job);
        step([&](guest::Outputs& out) { guest->command(from, c, out); });
        for (const auto& [key, before] : others) {
            const GuestJob* const after = guest->find(key);
            ck_assert_msg(after && *after == before, "seed %lu: guest %s was touched",
                          static_cast<unsigned long>(seed), key.text().c_str());
        }
    }

    // An effect ends, well or not.
    void effect() {
        if (effects.empty()) return;
        const auto at = effects.begin() + static_cast<ptrdiff_t>(rng.below(effects.size()));
        const guest::Do d = *at;
        effects.erase(at);
        const bool well = rng.chance(0.8);
        const auto end = [&](guest::Event event) {
            step([&](guest::Outputs& out) { guest->ended(d.key, std::move(event), out); });
        };
        using What = guest::Do::What;
        using namespace guest;
        switch (d.what) {
            case What::create_capsule:
            case What::make_place:
                return well ? end(CapsuleReady{}) : end(CapsuleFailed{"no room"});
            case What::start_job:
                return well ? end(JobStarted{}) : end(JobNotStarted{2, true, "?"});
            case What::hold_job: return well ? end(JobHeld{}) : end(JobNotStarted{2, true, "?"});
            case What::release_job: return end(JobStarted{});
            case What::ready_criu: return well ? end(CriuReady{}) : end(CriuFailed{"no", false});
            case What::send_precopy:
                return well ? end(SentPrecopy{}) : end(DumpFailed{"no", false});
            case What::dump_for_move:
            case What::dump_to_disk:
            case What::dump_to_keep:
                end(DumpFroze{unit::sample<GuestEvent>(rng).forecast, rng.chance(0.5)});
                return well ? end(DumpHeld{100, d.what == What::dump_for_move, true})
                            : end(DumpFailed{"no", true});
            case What::ship: return well ? end(Shipped{}) : end(ShipFailed{"no", false});
            case What::finish_dump:
            case What::kill_capsule: return end(CapsuleGone{});
            case What::undo_dump:
            case What::go_on: return end(DumpUndone{});
            case What::restore:
            case What::restore_local:
                return well ? end(RestoreHeld{}) : end(RestoreFailed{"no", false});
            case What::finish_restore:
                return well ? end(RestoreRunning{}) : end(RestoreFailed{"no", false});
            case What::remove: return end(Removed{});
            case What::send_checkpoint:
                return well ? end(CheckpointSent{}) : end(CheckpointFailed{"no"});
            case What::stand: return end(Stood{well ? "" : "no"});
            case What::pause: return end(Paused{d.on, well ? "" : "no"});
            case What::keep_lease:
                if (rng.chance(0.2)) end(Lapsed{});
                return;
            case What::silence:
            case What::signal:
            case What::drop_checkpoint: return;
        }
    }

    void run() {
        for (int i = 0; i < steps; ++i) {
            const uint64_t dice = rng.below(100);
            const NodeName from = rng.chance(0.5) ? liar : NodeName(honest[0]);
            if (dice < 35)
                command(from);
            else if (dice < 75)
                effect();
            else if (dice < 80)
                step([&](guest::Outputs& out) { guest->home_up(from, out); });
            else if (dice < 83)
                guest->home_down(from);
            else if (dice < 86)
                step([&](guest::Outputs& out) {
                    guest->heartbeat_answered(from, unit::sample<Heartbeat>(rng), now, out);
                });
            else if (dice < 88)
                step([&](guest::Outputs& out) {
                    guest->set_accepting(rng.chance(0.7), "its owner is there", out);
                });
            else if (dice < 89)
                start();
            else if (dice < 92)
                step([&](guest::Outputs& out) {
                    guest->not_read(from, {id(from), {1 + rng.below(4)}}, "unread", out);
                });
            else {
                now += Nanos::from_ms(rng.between(1, 100'000));
                step([&](guest::Outputs& out) { (void)guest->tick(now, out); });
            }
        }
    }
};

}  // namespace

START_TEST(a_home_stands_whatever_a_guest_or_a_market_says) {
    for (const uint64_t seed : seeds_of_lies(300)) LiedHome(seed).run();
}
END_TEST

START_TEST(a_guest_stands_whatever_a_home_says) {
    for (const uint64_t seed : seeds_of_lies(300)) LiedGuest(seed).run();
}
END_TEST

UNIT_SUITE_LONG(home_lies, 300, a_home_stands_whatever_a_guest_or_a_market_says,
                a_guest_stands_whatever_a_home_says);
