// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes that lie in the simulated cluster (`--liars`): enrolled ones, with hostile roots. Their
// machines do all that others do, since a node can always keep or end what runs on it. Beside that
// they say what they like. As providers they alter each number of what they tell homes of jobs that
// they have, and claim anything of jobs that others have. As homes they command others' guests,
// with tickets that they have seen, and report jobs that take others' room. To the market they say
// anything of themselves, of their use, and of everybody's jobs. All invariants hold for the jobs
// of honest homes, and the market goes on.
#include "agentd/wire/codec.hpp"
#include "tests/sim/cluster.hpp"

namespace souk::sim {

namespace {
constexpr int64_t huge = int64_t{1} << 60;

// Returns the message as its receiver reads it; nothing: it is no message of that kind to him.
template <class T>
std::optional<T> as_read(const T& message) {
    auto read = wire::unpack<T>(wire::pack(message));
    return read ? std::optional<T>(std::move(*read)) : std::nullopt;
}
}  // namespace

// Whether its home has brought that copy there, or is about to.
static bool is_at(const HomeJob& job, Epoch epoch, const NodeName& node) {
    return (epoch == job.epoch && node == job.at.node) ||
           (epoch == job.to_epoch && node == job.to.node) ||
           (epoch == job.saving.epoch && node == job.saving.peer.node) ||
           (epoch == job.evacuation.epoch && node == job.evacuation.peer.node) ||
           (epoch == job.checkpoint.epoch && node == job.checkpoint.at.node);
}

bool Cluster::is_liar(const NodeName& name) const { return liars_.contains(name); }

// Mostly a number that may be, so that most messages can be read; else one at which sums overflow,
// or at which reading ends.
int64_t Cluster::lied_number(int64_t usual_max) {
    const int64_t odd[] = {0,    -1,        int64_t{1} << 31, int64_t{1} << 53,
                           huge, INT64_MAX, INT64_MIN,        usual_max};
    return lies_.chance(0.9) ? lies_.between(0, usual_max) : odd[lies_.below(std::size(odd))];
}

NodeName Cluster::lied_node() {
    return lies_.chance(0.1) ? NodeName("ghost") : names_[lies_.below(names_.size())];
}

void Cluster::alter(GuestEvent& e) {
    if (!lies_.chance(0.3)) return;
    GuestEvent other = e;
    other.image_bytes = lies_.chance(0.5) ? huge : lied_number(int64_t{1} << 40);
    other.cpu_time = Nanos{lies_.chance(0.5) ? huge : lied_number(Nanos::from_s(100'000).ns)};
    other.pid = static_cast<int32_t>(lied_number(1 << 22));
    if (const auto read = as_read(other)) e = *read;
}

void Cluster::lie() {
    if (liars_.empty()) return;
    Node& n = node(*std::next(liars_.begin(), static_cast<int64_t>(lies_.below(liars_.size()))));
    if (!n.up) return;
    ++counts_.lies;
    switch (lies_.below(4)) {
        case 0: return lie_to_home(n);
        case 1: return lie_to_guest(n);
        default: return lie_to_market(n);
    }
}

// Anything of a (job, epoch) that is not there, and that its home will not bring there: its epoch
// is one of those that its home has used, or far beyond them.
void Cluster::lie_to_home(Node& n) {
    const NodeName to = names_[lies_.below(names_.size())];
    Node& home = node(to);
    if (is_liar(to) || !home.up || home.home->jobs().empty()) return;
    const auto& jobs = home.home->jobs();
    const HomeJob& job =
        std::next(jobs.begin(), static_cast<int64_t>(lies_.below(jobs.size())))->second;
    GuestEvent e;
    e.id = job.id;
    e.epoch = {1 + lies_.below(job.last_epoch.n + 1)};
    if (e.epoch.n > job.last_epoch.n) e.epoch.n += 1'000'000 + lies_.below(3);
    const auto bound = epochs_[e.id].find(e.epoch.n);
    if (bound != epochs_[e.id].end() && bound->second.first == n.name) return;
    if (is_at(job, e.epoch, n.name)) return;
    e.state = static_cast<GuestState>(lies_.between(1, static_cast<int>(GuestState::filling)));
    e.wait_status = static_cast<int32_t>(lies_.below(1 << 16));
    e.error = static_cast<int32_t>(lies_.below(200));
    e.program_error = lies_.chance(0.2);
    e.lapsed = lies_.chance(0.2);
    e.leased = lies_.chance(0.5);
    e.in_place = lies_.chance(0.2);
    e.no_user = lies_.chance(0.2);
    e.must_leave = lies_.chance(0.2);
    e.went_on = lies_.chance(0.3);
    e.image_refused = lies_.chance(0.2);
    e.all_stand = lies_.chance(0.2);
    if (lies_.chance(0.5)) e.held_for = lies_.chance(0.5) ? job.to_epoch : Epoch{lies_.below(9)};
    for (uint64_t* end : {&e.output_end[0], &e.output_end[1], &e.input_end})
        *end = static_cast<uint64_t>(lied_number(1'000'000));
    alter(e);
    if (!as_read(e)) return;
    say(n.name, " lies to ", to, " about ", GuestKey{e.id, e.epoch}, ": ", to_string(e.state));
    if (lies_.chance(0.1)) return to_home(n, to, Expel{e.id, e.epoch});
    to_home(n, to, e);
}

// A command about a job of somebody else's, or about one that the market has not placed there.
void Cluster::lie_to_guest(Node& n) {
    const NodeName to = names_[lies_.below(names_.size())];
    if (is_liar(to) || !node(to).up || link(n.name, to).guest_gen == 0) return;
    std::vector<GuestKey> there;
    for (const auto& [at, c] : world_.capsules.on(to))
        if (!is_liar(at.second.id.home)) there.push_back(at.second);
    GuestCommand c;
    c.id = {n.name, lied_jobs + lies_.below(5)};
    c.epoch = {1 + lies_.below(9)};
    if (!there.empty() && lies_.chance(0.8)) {
        const GuestKey& key = there[lies_.below(there.size())];
        c.id = key.id;
        c.epoch = key.epoch;
    }
    c.verb = static_cast<GuestVerb>(lies_.between(1, static_cast<int>(GuestVerb::checkpoint)));
    c.new_epoch = {c.epoch.n + lies_.below(3)};
    c.dest = c.source = names_[lies_.below(names_.size())];
    c.dest_address = c.dest + ":1";
    c.memory_mb = lied_number(8'000);
    c.cpus = static_cast<int32_t>(lied_number(4));
    c.signal = 9;
    c.or_stand = lies_.chance(0.5);
    c.stand = lies_.chance(0.5);
    c.spec.launch.argv = {"/bin/lie"};
    c.spec.launch.path = "/bin/lie";
    c.spec.launch.cwd = "/";
    std::vector<std::string> seen;
    for (const Overheard& o : overheard_)
        if (o.guest == n.name || o.command.id.home == n.name) seen.push_back(o.command.ticket);
    if (!seen.empty() && lies_.chance(0.5)) c.ticket = seen[lies_.below(seen.size())];
    if (!as_read(c)) return;
    say(n.name, " commands ", to, " as a home: ", to_string(c.verb), " ", GuestKey{c.id, c.epoch});
    const NodeName from = mutation_ == Mutation::anybody_commands ? c.id.home : n.name;
    guest_step(node(to),
               [&](Guest& g, guest::Outputs& out) { g.command(from, c, out, warrant_of(c)); });
}

void Cluster::lie_to_market(Node& n) {
    if (!n.market_up) return;
    const auto any_job = [&]() -> JobId {
        if (market_order_.empty() || lies_.chance(0.3))
            return {n.name, lied_jobs + lies_.below(20)};
        return *market_order_[lies_.below(market_order_.size())];
    };
    const auto any_epoch = [&] { return Epoch{lies_.chance(0.1) ? huge : lies_.below(9)}; };
    say(n.name, " lies to the market");
    switch (lies_.below(5)) {
        case 0: {
            ProviderReport p;
            p.node = lies_.chance(0.9) ? n.name : lied_node();
            p.on_market = lies_.chance(0.8);
            p.reserve = Money{lied_number(100'000'000)};
            p.speed = lied_number(100'000);
            p.cpus = static_cast<int32_t>(lied_number(1'000));
            p.memory_mb = lied_number(int64_t{1} << 40);
            p.free_mb = lied_number(int64_t{1} << 40);
            p.load_permille = p.wait_permille = static_cast<int32_t>(lied_number(1'000));
            p.opens = Nanos{lied_number(now_.ns)};
            if (as_read(p)) book_.is_told(n.name, p, now_);
            return;
        }
        case 1: {
            UseReport use;
            for (uint64_t i = lies_.below(3); i > 0; --i) {
                use.jobs.push_back({any_job(), any_epoch(), Nanos{lied_number(now_.ns)},
                                    Nanos{lied_number(now_.ns)}, lies_.chance(0.5)});
                use.sends.push_back({any_job(), any_epoch(), lied_node(),
                                     static_cast<uint64_t>(lied_number(1 << 30)),
                                     static_cast<uint64_t>(lied_number(1 << 30)),
                                     Nanos{lied_number(now_.ns)}});
            }
            if (as_read(use)) book_.is_told(n.name, use, now_);
            return;
        }
        case 2: {
            OrderFailed f;
            f.id = any_job();
            f.seq = static_cast<uint64_t>(lied_number(200));
            f.node = lied_node();
            if (as_read(f)) book_.is_told(n.name, f, now_);
            return;
        }
        default: break;
    }
    JobReport r;
    r.id = any_job();
    r.uid = r.id.home == n.name && r.id.seq < lied_jobs ? 0 : liars_uid;
    r.user = "liar";
    r.terms.max_price = Money{lied_number(100'000'000)};
    if (lies_.chance(0.2)) r.terms.budget = Money{lied_number(100'000'000)};
    r.terms.cpus = static_cast<int32_t>(lied_number(4));
    r.terms.memory_mb = lied_number(8'000);
    r.phase = static_cast<JobPhase>(lies_.between(1, static_cast<int>(JobPhase::finished)));
    r.where = lied_node();
    r.to = lied_node();
    r.epoch = any_epoch();
    r.order_seq = static_cast<uint64_t>(lied_number(200));
    r.stats.run_time = Nanos{lied_number(2 * now_.ns)};
    r.stats.cpu_time = Nanos{lied_number(2 * now_.ns)};
    r.stats.image_bytes = r.checkpoint_bytes = lied_number(int64_t{1} << 40);
    r.stay_run = Nanos{lied_number(now_.ns)};
    r.in_place = lies_.chance(0.3);
    if (as_read(r)) book_.is_told(n.name, r, now_);
}

}  // namespace souk::sim
