// SPDX-License-Identifier: GPL-2.0-or-later
// Time, faults, the toy market, the users, and the checks at the end: see cluster.hpp.
#include "tests/sim/cluster.hpp"

#include <algorithm>
#include <csignal>

#include "kernel/base/check.hpp"

namespace souk::sim {

namespace {
constexpr Nanos fault_time = Nanos::from_s(180);
constexpr Nanos heal_time = Nanos::from_s(1200);
}  // namespace

namespace {
Book::Bug bug_of(Mutation m) {
    switch (m) {
        case Mutation::skip_receipt: return Book::Bug::skip_receipt;
        case Mutation::torn_ledger_commit: return Book::Bug::torn_commit;
        case Mutation::bill_frozen_time: return Book::Bug::bill_frozen_time;
        case Mutation::broken_unsaid: return Book::Bug::no_broken;
        default: return Book::Bug::none;
    }
}
}  // namespace

Cluster::Cluster(uint64_t seed, Mutation mutation, bool trace, ClusterSize size, Faults faults)
    : mutation_(mutation),
      tracing_(trace),
      size_(size),
      allowed_(std::move(faults)),
      rng_(seed),
      book_(seed, bug_of(mutation), size.booked),
      bookings_(seed ^ 0x626f6f6b6564),
      hostile_(seed ^ 0x7469636b6574),
      owners_(seed ^ 0x6f776e6572),
      wishes_(seed ^ 0x6d656d6f7279),
      lies_(seed ^ 0x6c696573) {
    seed_of_rate_ = seed ^ 0x72617465;
    limits_.step_patience = Nanos::from_s(10);
    limits_.transfer_patience = Nanos::from_s(60);
    limits_.finished_max = 3;
    limits_.boot = 1;  // virtual time goes on
    // Seeds differ in kind, so that some see few faults and go deep, others see many.
    crash_chance_ = rng_.chance(0.3) ? 0 : rng_.unit() * 0.01;
    break_chance_ = rng_.chance(0.3) ? 0 : rng_.unit() * 0.03;
    fail_chance_ = rng_.chance(0.3) ? 0 : rng_.unit() * 0.2;
    slow_chance_ = rng_.chance(0.5) ? 0 : rng_.unit() * 0.1;
    queue_while_down_ = rng_.chance(0.7);
    const int64_t nodes = rng_.between(2, 4);
    // Beside liars two are honest.
    const int64_t least = size_.liars > 0 ? size_.liars + 2 : 0;
    for (int64_t i = 1; i <= std::max(size_.nodes > 0 ? size_.nodes : nodes, least); ++i)
        names_.push_back("n" + std::to_string(i));
    liars_.insert(names_.end() - size_.liars, names_.end());
    book_.liars = liars_;
    for (const NodeName& name : names_) nodes_[name].name = name;
    if (rng_.chance(0.6)) limits_.checkpoint_every = ms(2'000, 40'000);
    if (rng_.chance(0.5)) death_chance_ = rng_.unit() * 0.3;
    if (death_chance_ > 0 && rng_.chance(0.5)) provider_only_ = names_.back();
    limits_.lease = rng_.chance(0.3) ? Nanos{} : ms(4'000, 60'000);
    if (rng_.chance(0.3)) undumpable_ = rng_.unit() * 0.5;
    limits_.wake = static_cast<WakeRule>(seed % 3);
    policy_.leave = ms(1'000, 30'000);
    policy_.kill = rng_.chance(0.3);
    policy_.stand = ms(1'000, 60'000);
    for (const NodeName& name : names_) nodes_[name].clock_ppm = rng_.between(-490, 490);
    disks_fill_ = rng_.chance(0.4);
    presence_.on_return = static_cast<OwnerUsePolicy::Return>(owners_.between(1, 3));
    presence_.stop = owner_ms(0, 10'000);
    presence_.leave = owner_ms(0, 30'000);
    presence_.away = owner_ms(4'000, 15'000);
    promise_.free_cpu = owner_ms(1, 200);
    promise_.free_memory = owners_.chance(0.2) ? Nanos{} : owner_ms(1'000, 60'000);
    promise_.empty = owners_.chance(0.2) ? Nanos{} : owner_ms(5'000, 90'000);
    if (size_.booked) open_book();
    ranks_fail_ = fail_chance_ > 0;
    // Charges of honest jobs are looked at only if nothing else is lost (check_charges).
    if (!liars_.empty() && lies_.chance(0.4)) {
        crash_chance_ = break_chance_ = death_chance_ = 0;
        disks_fill_ = false;
    }
    choose_rate();
}

void Cluster::after(Nanos delay, Call call) {
    const int64_t at = now_.ns + std::max<int64_t>(delay.ns, 0);
    events_.push_back({at, ++next_event_, std::move(call)});
    std::push_heap(events_.begin(), events_.end());
}

bool Cluster::run_until(Nanos end) {
    constexpr uint64_t events_max = 3'000'000;
    while (!events_.empty() && events_.front().at <= end.ns) {
        std::pop_heap(events_.begin(), events_.end());
        const Event event = std::move(events_.back());
        events_.pop_back();
        now_.ns = event.at;
        event.call();
        check_owners();
        if (++counts_.events > events_max && world_.failure.empty())
            world_.failure = "events without end";
        if (!world_.failure.empty()) return false;
    }
    now_ = end;
    return true;
}

// ----------------------------------------------------------------------------------------------
// users and owners

void Cluster::submit_job() {
    Node& n = node(names_[rng_.below(names_.size())]);
    if (!n.up || n.name == provider_only_) return;
    Submission s;
    s.spec.restart = rng_.chance(0.3);
    s.spec.launch.argv = {"/bin/job"};
    s.spec.launch.path = "/bin/job";
    s.spec.launch.cwd = "/";
    s.terms.max_price = Money::units(rng_.between(1, 100));
    s.terms.memory_mb = owners_.between(1, 3'000);
    // up to some minutes
    if (rng_.chance(0.3)) s.terms.budget = Money{rng_.between(1'000, 2'000'000)};
    if (size_.components > 0) return submit_gang(n, std::move(s));
    if (size_.booked) ask_for_place(s);
    home_step(n, [&](Home& h, home::Outputs& out) {
        const auto id = h.submit(s, now_, out);
        MUST(id.has_value());
        Truth& t = world_.truths[*id];
        const bool lost = rng_.chance(0.05), rare = rng_.chance(0.05);
        for (const NodeName& name : names_)
            if (lost || (rare && rng_.chance(0.5))) t.lacking.insert(name);
        t.memory_mb = s.terms.memory_mb;
        t.cannot_dump = rng_.chance(undumpable_);
        t.work = rng_.chance(0.2) ? rng_.between(0, 50'000'000)
                                  : rng_.between(1'000'000'000, 120'000'000'000);
        if (s.terms.booking->holds) t.work = Nanos::from_s(1'000'000).ns;
        ++counts_.jobs;
    });
}

void Cluster::random_user() {
    if (market_.empty()) return;
    const JobId id = *market_order_[rng_.below(market_order_.size())];
    Node& n = node(id.home);
    const uint64_t what = rng_.below(20);
    home_step(n, [&](Home& h, home::Outputs& out) {
        if (what == 0) {
            if (h.cancel(id, now_, out)) world_.truths[id].cancelled = true;
        } else if (what < 4) {
            const HomeJob* job = h.find(id);
            JobTerms terms = job ? job->terms : JobTerms{};
            terms.max_price = Money::units(rng_.between(1, 100));
            // That of a gang would be divided anew, and one of its components may have used more.
            if (terms.budget.micro > 0 && rng_.chance(0.5) && job->group.components == 0)
                terms.budget += Money{rng_.between(1, 1'000'000)};
            (void)h.change(id, terms, now_, out);
        } else {
            (void)h.signal(id, what < 6 ? SIGKILL : SIGTERM, out);
        }
    });
}

void Cluster::random_owner() {
    Node& n = node(names_[rng_.below(names_.size())]);
    provider_step(n, [&](Provider& p, provider::Outputs& out) {
        p.market(!p.record().on_market, wall(), out);
    });
}

void Cluster::machine_dies(Node& n) {
    if (n.dead) return;
    for (const auto& [at, c] : world_.capsules.on(n.name))
        if (c.unwatched) return;
    ++counts_.deaths;
    say("the machine ", n.name, " dies");
    crash(n);
    world_.machine_dies(n.name, now_);
    n.dead = true;
    n.for_good = n.name == provider_only_ && rng_.chance(0.5);
    ++n.life;  // not the daemon's own return
    if (n.for_good) return;
    const Nanos back_after = ms(1'000, 100'000);
    leave_watch_.trouble(n.name, now_ + back_after);
    after(back_after, [this, name = n.name] {
        Node& back = node(name);
        back.dead = false;
        if (!back.up) boot(back);
    });
}

// Says whether every machine that is left has tried to start the job.
bool Cluster::nobody_has(const std::vector<NodeName>& lacking) const {
    return !lacking.empty() && std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
        return entry.second.dead ||
               std::find(lacking.begin(), lacking.end(), entry.first) != lacking.end();
    });
}

// The operator tells every home that hears him.
void Cluster::operator_says_lost(const NodeName& lost) {
    say("the operator says that ", lost, " is lost");
    if (size_.booked) book_.is_lost(lost);
    for (const NodeName& name : names_) {
        Node& n = node(name);
        if (!n.up || !n.market_up || name == lost) continue;
        for (const auto& [seq, job] : n.home->jobs()) {
            if (job.at.node == lost && job.phase != JobPhase::finished) {
                world_.truths[job.id].destroyed = true;
                world_.truths[job.id].ended.reset();  // and nobody has heard of it
            }
            if (job.step == MoveStep::release && job.to.node == lost)
                world_.stands_at(job.id, {job.at.node, {job.id, job.epoch}}, now_);
        }
        home_step(n, [&](Home& h, home::Outputs& out) { h.node_lost(lost, now_, out); });
    }
}

void Cluster::random_fault() {
    const auto name = names_[rng_.below(names_.size())];
    const uint64_t what = rng_.below(20);
    if (what < 2 && crash_chance_ > 0) crash(node(name));
    if (what >= 2 && what < 8 && break_chance_ > 0) {
        const auto other = names_[rng_.below(names_.size())];
        if (other != name) break_link(name, other);
    }
    if (what == 8 && break_chance_ > 0) {
        disconnect_market(node(name));
        after(ms(1, 5000), [this, name] {
            if (node(name).up && !node(name).market_up) connect_market(node(name));
        });
    }
    if (what >= 12 && what < 15 && break_chance_ > 0) {
        const auto other = names_[rng_.below(names_.size())];
        if (other != name) partition(name, other);
    }
    if (what == 10 && rng_.chance(death_chance_)) machine_dies(node(name));
    if (what == 11 && death_chance_ > 0 &&
        (node(name).dead || mutation_ == Mutation::lost_too_early))
        operator_says_lost(name);
    if (what >= 15 && what < 17 && disks_fill_) {
        say("the disk of ", name, " is full");
        node(name).full_until = now_ + ms(100, 30'000);
        leave_watch_.trouble(name, node(name).full_until);
    }
    if (what == 17 && disks_fill_) {
        say("the disk of the market is full");
        book_full_until_ = now_ + ms(100, 30'000);
    }
    if (what == 9 && fail_chance_ > 0 && !world_.capsules.empty() && rng_.chance(0.3)) {
        auto it = world_.capsules.begin();
        std::advance(it, rng_.below(world_.capsules.size()));
        const auto at = it->first;
        kill_pid1(at.first, at.second);
    }
}

// -------------------------------------------------------------------------------------------------
// the market

void Cluster::disconnect_market(Node& n) {
    if (n.market_up) book_.lost(n.name, now_);
    if (n.market_up && size_.booked) booked_.offers(n.name, nullptr, now_);
    n.market_up = false;
    ++n.market_gen;
    if (n.up) home_step(n, [](Home& h, home::Outputs&) { h.market_down(); });
}

void Cluster::market_restarts() {
    if (break_chance_ <= 0) return;  // it costs every home its connection
    say("the market restarts");
    book_.restart(now_);
    booked_.restarted();
    for (const NodeName& name : names_) {
        Node& n = node(name);
        if (!n.up) continue;
        disconnect_market(n);
        after(ms(1, 2000), [this, name] {
            if (node(name).up && !node(name).market_up) connect_market(node(name));
        });
    }
}

// The real market's turn, and what it tells the homes.
void Cluster::book_step() {
    book_.disk_is_full(now_ < book_full_until_);
    const Nanos next = book_.step(now_, [this](const NodeName& name, const FromMarket& message) {
        market_says(name, message);
    });
    see_places();
    check_charges();
    if (world_.failure.empty()) world_.failure = book_.failure;
    if (next == Nanos::never() || (book_at_ > now_ && book_at_ <= next)) return;
    book_at_ = std::max(next, now_ + Nanos::from_ms(100));
    after(book_at_ - now_, [this, at = book_at_] {
        if (book_at_ != at) return;
        book_at_ = Nanos::never();
        book_step();
    });
}

// While nothing is lost, a job is charged for its run time, give or take the time that messages
// need at each start and stop of its clock. The jobs that this step has charged are checked in it;
// all jobs are checked when the book looks at all its records.
void Cluster::check_charges() {
    if (crash_chance_ > 0 || break_chance_ > 0 || outage_ || death_chance_ > 0 || disks_fill_)
        return;
    if (book_.looked_at_all()) {
        for (const auto& [id, job] : market_) check_charge(id, job);
        return;
    }
    for (const JobId& id : book_.stored_now())
        if (const auto job = market_.find(id); job != market_.end()) check_charge(id, job->second);
}

void Cluster::check_charge(const JobId& id, const MarketJob& job) {
    const Nanos late = Nanos::from_ms(slow_chance_ > 0 ? 5'000 : 500);
    const JobStats& s = job.report.stats;
    if (world_.truths[id].went_back || is_liar(id.home)) return;
    const auto epochs = static_cast<int64_t>(epochs_[id].size());  // checkpoints among them
    const int64_t stops = s.freezes + s.thaws + s.migrations + s.failed_moves + epochs +
                          world_.truths[id].pauses + world_.truths[id].stands;
    Nanos ran{world_.truths[id].frontier};
    for (const auto* c : world_.capsules.of(id))
        ran = std::max(ran, Nanos{world_.progress(c->second, now_)});
    // a kill that takes its time
    if (slow_chance_ > 0 && world_.truths[id].cancelled) ran += Nanos::from_s(30);
    if (book_.charged(id) > ran + Nanos{(stops + 1) * late.ns})
        world_.fail(id, "ran for " + std::to_string(ran.seconds()) + " s and is charged for " +
                            std::to_string(book_.charged(id).seconds()));
}

void Cluster::connect_market(Node& n) {
    connect_book(n);
    n.market_up = true;
    ++n.market_gen;
    n.last_from_market = n.last_to_market = now_;
    home_step(n, [this](Home& h, home::Outputs& out) { h.market_up(now_, out); });
}

void Cluster::market_hears(const JobReport& report) {
    const auto [known, is_new] = market_.try_emplace(report.id);
    if (is_new)
        market_order_.insert(
            std::lower_bound(market_order_.begin(), market_order_.end(), report.id,
                             [](const JobId* a, const JobId& b) { return *a < b; }),
            &known->first);
    MarketJob& job = known->second;
    job.report = report;
    book_.hears(report, now_);
    if (size_.booked) booked_.heard(report, now_);
    book_step();
    if (report.phase != JobPhase::finished || job.settled || size_.booked) return;
    Node& n = node(report.id.home);
    if (!n.market_up) return;
    after(ms(1, 50), [this, id = report.id, gen = n.market_gen] {
        Node& on = node(id.home);
        if (!on.up || on.market_gen != gen) return;
        JobNote note;
        note.id = id;
        note.settled = true;
        home_step(on, [&](Home& h, home::Outputs& out) { h.note(note, now_, out); });
    });
}

void Cluster::market_send(const JobId& id, Order::Kind kind, bool stand) {
    Node& n = node(id.home);
    Order order;
    order.id = id;
    order.seq = ++order_seq_;
    order.kind = kind;
    size_t to = rng_.below(names_.size());
    // Healed, it sends no job to where its program is known to be missing, but to where it stands
    // in memory, as the real one does (Places::lacks).
    const JobReport& report = market_.at(id).report;
    const std::vector<NodeName>& lacking = report.lacking;
    const auto lacks = [&] {
        if (report.in_place) return names_[to] != report.where;
        return std::ranges::find(lacking, names_[to]) != lacking.end();
    };
    for (size_t tries = 0; !faults_ && lacks() && tries < names_.size(); ++tries)
        to = (to + 1) % names_.size();
    order.node = names_[to];
    order.address = order.node + ":1";
    order.price = market_.at(id).report.terms.max_price;
    order.hold = true;
    order.stand = stand;
    give_ticket(order);
    for (const NodeName& name : names_)
        if (stand || (kind == Order::Kind::run && name == order.node))
            leave_watch_.to_stay(id, name, now_);
    if (!n.market_up) return;
    n.last_from_market = std::max(n.last_from_market + Nanos{1}, now_ + ms(0, 5));
    after(n.last_from_market - now_, [this, order, gen = n.market_gen] {
        Node& on = node(order.id.home);
        if (!on.up || on.market_gen != gen) return;
        say("market -> ", on.name, " job ", order.id.text(),
            order.kind == Order::Kind::run       ? " run on " + order.node
            : order.kind == Order::Kind::suspend ? std::string(order.stand ? " stop" : " suspend")
            : order.kind == Order::Kind::abort   ? std::string(" abort")
                                                 : std::string(" give up"));
        home_takes(on, order);
    });
}

void Cluster::home_takes(Node& n, const Order& order) {
    home_step(n, [&](Home& h, home::Outputs& out) {
        const HomeJob* job = h.find(order.id);
        if (order.kind == Order::Kind::abort && job && job->phase != JobPhase::finished &&
            order.seq > job->order_seq)
            world_.truths[order.id].cancelled = true;
        if (order.kind == Order::Kind::give_up) world_.truths[order.id].given_up = true;
        h.order(order, now_, out);
    });
}

void Cluster::market_orders() {
    if (market_.empty()) return;
    const JobId& id = *market_order_[rng_.below(market_order_.size())];
    if (market_.at(id).report.phase == JobPhase::finished) return;
    const uint64_t what = rng_.below(100);
    if (nobody_has(market_.at(id).report.lacking)) return market_send(id, Order::Kind::give_up);
    if (what < 70 && order_gang(id)) return;
    market_send(id,
                what < 70   ? Order::Kind::run
                : what < 99 ? Order::Kind::suspend
                            : Order::Kind::abort,
                what >= 80 && what < 99);
}

// Healed: what waits or is frozen is told to run, until it has ended.
void Cluster::market_heal() {
    for (const auto& [id, job] : market_)
        if (job.report.phase == JobPhase::waiting || job.report.phase == JobPhase::frozen)
            market_send(id,
                        nobody_has(job.report.lacking) ? Order::Kind::give_up : Order::Kind::run);
}

// Users raise budgets that are used up.
void Cluster::lift_budgets(Node& n) {
    std::vector<std::pair<JobId, JobTerms>> jobs;
    for (const auto& [seq, job] : n.up ? n.home->jobs() : std::map<uint64_t, HomeJob>{})
        if (job.terms.budget.micro > 0 && job.phase != JobPhase::finished)
            jobs.emplace_back(job.id, job.terms);
    for (auto& [id, terms] : jobs) {
        terms.budget = {};
        home_step(n, [&, id = id, terms = terms](Home& h, home::Outputs& out) {
            (void)h.change(id, terms, now_, out);
        });
    }
}

// -------------------------------------------------------------------------------------------------
// the run

bool Cluster::all_finished() {
    for (const auto& [name, n] : nodes_) {
        if (n.for_good) continue;
        if (!n.up) return false;
        for (const auto& [seq, job] : n.home->jobs()) {
            const bool orphans =
                std::any_of(job.orphans.begin(), job.orphans.end(),
                            [&](const Orphan& r) { return !node(r.peer.node).for_good; });
            if (job.phase != JobPhase::finished || orphans || !job.settled) return false;
        }
    }
    return true;
}

std::string Cluster::what_is_left() {
    std::string left;
    for (const auto& [name, n] : nodes_) {
        if (n.for_good) continue;
        if (!n.up) left += name + " is down; ";
        if (!n.up) continue;
        for (const auto& [seq, job] : n.home->jobs()) {
            if (job.phase != JobPhase::finished)
                left += "job " + job.id.text() + " is still " + to_string(job.phase) + " at " +
                        job.at.node + " epoch " + std::to_string(job.epoch.n) + " step " +
                        std::to_string(static_cast<int>(job.step)) + "; ";
            else if (!job.settled)
                left += "job " + job.id.text() + " is not settled; ";
            for (const Orphan& r : job.orphans)
                if (!node(r.peer.node).for_good)
                    left += "an orphan of " + job.id.text() + "." + std::to_string(r.epoch.n) +
                            " on " + r.peer.node + "; ";
        }
        for (const auto& [key, job] : n.guest->all())
            left += name + " keeps " + key.text() + " " + to_string(job.job.state) + "; ";
        for (const auto& [key, job] : guest_records(n))
            if (!n.guest->find(key)) left += name + " keeps a record of " + key.text() + "; ";
        // a record with orphans on a dead node is kept longer
        const size_t more = provider_only_.empty() ? 0 : 3 * limits_.finished_max;
        if (n.home->jobs().size() > limits_.finished_max + more)
            left += name + " remembers too many finished jobs; ";
        if (home_records(n).size() != n.home->jobs().size())
            left += name + " has other jobs on disk than in memory; ";
    }
    for (const auto& [at, c] : world_.capsules)
        if (!node(at.first).for_good)
            left += "a capsule of " + at.second.text() + " on " + at.first + "; ";
    for (const auto& [at, i] : world_.images)
        if (!node(at.first).for_good)
            left += "an image of " + at.second.text() + " on " + at.first + "; ";
    return left;
}

// Long: one stretch of a run after the other.
std::string Cluster::run() {
    for (const NodeName& name : names_) boot(node(name));
    const int64_t few = rng_.between(1, 8), jobs = size_.jobs > 0 ? size_.jobs : few;
    for (int64_t i = 0; i < jobs; ++i) after(ms(0, 30'000), [this] { submit_job(); });
    // each job as often as in a small one
    const Nanos pace{std::max<int64_t>(ms(20, 3000).ns * few / jobs, 1'000'000)};
    const bool owners = rng_.chance(0.4);
    owners_come_and_go();
    for (Nanos t = Nanos::from_s(1); t < fault_time;
         t += Nanos::from_ms(hostile_.between(10, 4000)))
        after(t, [this] { hostile_home(); });
    for (Nanos t = Nanos::from_s(1); !liars_.empty() && t < fault_time;
         t += Nanos::from_ms(lies_.between(10, 1000)))
        after(t, [this] { lie(); });
    for (Nanos t = Nanos::from_ms(10); !size_.booked && t < fault_time;
         t += Nanos{rng_.between(1, 2 * pace.ns)})
        after(t, [this] { market_orders(); });
    for (Nanos t = Nanos::from_s(1); t < fault_time; t += ms(10, 4000)) {
        after(t, [this] {
            if (happens()) random_fault();
        });
        if (owners && rng_.chance(0.2)) after(t, [this] { random_owner(); });
        if (rng_.chance(0.2)) after(t, [this] { random_user(); });
        if (rng_.chance(0.05)) after(t, [this] { market_restarts(); });
    }
    if (!run_until(fault_time)) return world_.failure;

    say("everything is healed");
    faults_ = false;
    book_full_until_ = {};
    limits_.checkpoint_every = {};
    cut_.clear();
    owners_are_gone();
    for (const NodeName& name : names_) {
        Node& n = node(name);
        provider_step(n, [&](Provider& p, provider::Outputs& out) { p.market(true, wall(), out); });
        if (size_.booked) owner_lends_all(n);
        if (n.up && !n.market_up) connect_market(n);
        n.full_until = {};
    }
    if (owners_.chance(0.5) && !owners_take_all_back()) return world_.failure;
    const Nanos back = now_;
    if (size_.booked) submit_quiet_jobs();
    const Nanos heals{heal_time.ns * (size_.booked ? 3 : 1)};
    for (Nanos t = Nanos::from_s(5); t < heals; t += Nanos::from_s(5)) {
        if (!run_until(back + t)) return world_.failure;
        owners_are_gone();
        for (const NodeName& name : names_) {
            Node& n = node(name);
            if (n.up && !n.provider->record().on_market)
                provider_step(
                    n, [&](Provider& p, provider::Outputs& out) { p.market(true, wall(), out); });
            lift_budgets(n);
            if (size_.booked) owner_lends_all(n);
            if (n.for_good) operator_says_lost(name);
        }
        const Nanos least = Nanos::from_s(size_.booked ? 250 : 150);
        if (t > least && all_finished() && what_is_left().empty()) break;
        if (!size_.booked) market_heal();
        for (const NodeName& name : names_)
            if (size_.booked && t > least) wants_end(node(name));
    }
    if (size_.booked) judge_promises();
    if (!world_.failure.empty()) return world_.failure;
    const std::string left = what_is_left();
    for (const auto& [id, job] : market_) {
        counts_.moves += job.report.stats.migrations;
        counts_.freezes += job.report.stats.freezes;
        counts_.thaws += job.report.stats.thaws;
        counts_.resumes += job.report.stats.resumes;
        counts_.failed_moves += job.report.stats.failed_moves;
        const Truth& t = world_.truths[id];
        ++(t.ended ? counts_.ended : t.cancelled ? counts_.cancelled : counts_.lost);
    }
    return left.empty() ? "" : "after everything was healed: " + left;
}

}  // namespace souk::sim
