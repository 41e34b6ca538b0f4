// SPDX-License-Identifier: GPL-2.0-or-later
// One move and one fault in it (Cluster::run_one_fault), and the table of what comes of each. The
// table in docs/move.md is written from these rows.
#include "tests/sim/fault_table.hpp"

#include "kernel/base/check.hpp"

namespace souk::sim {

namespace {
const NodeName home = "n1", source = "n2", destination = "n3";
constexpr Nanos quiet_time = Nanos::from_s(400), thaw_time = Nanos::from_s(60);

constexpr auto copied = MoveForm::stop_and_copy, paged = MoveForm::pages_first,
               early = MoveForm::post_copy;
constexpr MovesOf all{"all", copied, early, Sources::any};
constexpr MovesOf copies_fenced{"stop and copy", copied, copied, Sources::fenced};
constexpr MovesOf copies{"stop and copy", copied, copied, Sources::not_fenced};
constexpr MovesOf paged_any{"pages first", paged, paged, Sources::any};
constexpr MovesOf paged_not_fenced{"pages first", paged, paged, Sources::not_fenced};
constexpr MovesOf early_any{"post-copy", early, early, Sources::any};
constexpr MovesOf early_not_fenced{"post-copy", early, early, Sources::not_fenced};
// If the source is not fenced, its home first has it killed ("kill old"). If the source is fenced,
// its home goes to "release" at once.
//                source   dest.   home    source  dest.  home-   home-         source  dest.
//                agentd   agentd  agentd  CRIU    CRIU   source  dest.  pages  PID 1   PID 1
constexpr FaultRow rows[] = {
    {all, Moment::prepare, {"SD", "SD", "S", "S", "S", "SD", "SD", "S", "E", "DS"}},
    // F: the source dies when it has shipped a whole image, and then the move is given up.
    {all, Moment::transfer, {"SD", "S", "S", "SD", "S", "DS", "DS", "SD", "EDF", "S"}},
    {copies_fenced, Moment::release, {"D", "SD", "D", "D", "SD", "D", "D", "D", "D", "SE"}},
    {copies, Moment::kill_old, {"D", "F", "D", "D", "F", "D", "D", "D", "D", "F"}},
    {copies, Moment::release, {"D", "FD", "D", "D", "FD", "D", "D", "D", "D", "FE"}},
    {paged_not_fenced, Moment::kill_old, {"D", "S", "D", "D", "S", "D", "D", "D", "D", "S"}},
    {paged_any, Moment::release, {"D", "SD", "D", "D", "SD", "D", "D", "D", "D", "SE"}},
    {early_not_fenced, Moment::kill_old, {"SD", "S", "D", "D", "S", "D", "D", "SD", "ED", "S"}},
    {early_any, Moment::release, {"SD", "SD", "D", "D", "SD", "D", "D", "SD", "ED", "SED"}},
    {early_any, Moment::filling, {"SD", "SD", "D", "D", "D", "D", "D", "SD", "ED", "SED"}},
};

std::string cell(const char* outcomes) {
    std::string text;
    for (const char* c = outcomes; *c != 0; ++c) (text += text.empty() ? "" : " ") += *c;
    return text;
}
}  // namespace

std::span<const FaultRow> fault_rows() { return rows; }

std::string fault_table() {
    constexpr auto victims = static_cast<uint8_t>(Victim::count_);
    static const char* const of[] = {"either", "fenced", "not fenced"};
    std::string text = "| form | source | step |", line = "|---|---|---|";
    for (uint8_t v = 0; v < victims; ++v) {
        text += std::string(" ") + victim_name(Victim{v}) + " |";
        line += "---|";
    }
    text += "\n" + line + "\n";
    for (const FaultRow& row : rows) {
        text += std::string("| ") + row.moves.forms + " | " +
                of[static_cast<size_t>(row.moves.sources)] + " | " + moment_name(row.moment) + " |";
        for (const char* outcomes : row.by_victim) text += " " + cell(outcomes) + " |";
        text += "\n";
    }
    return text;
}

const char* victim_name(Victim v) {
    static const char* const names[] = {
        "source agentd",    "destination agentd", "home agentd",           "source CRIU",
        "destination CRIU", "home-source link",   "home-destination link", "transfer",
        "source PID 1",     "destination PID 1"};
    return names[static_cast<size_t>(v)];
}

const char* moment_name(Moment m) {
    static const char* const names[] = {"prepare", "transfer", "kill old", "release", "filling"};
    return names[static_cast<size_t>(m)];
}

void Cluster::order_to(const JobId& id, const NodeName& where) {
    Order order;
    order.id = id;
    order.seq = ++order_seq_;
    order.kind = Order::Kind::run;
    order.node = where;
    order.address = where + ":1";
    order.price = Money::units(1);
    const HomeJob* const job = node(home).up ? node(home).home->find(id) : nullptr;
    give_ticket(order, job ? job->at.node : "");
    home_step(node(home), [&](Home& h, home::Outputs& out) { h.order(order, now_, out); });
}

bool Cluster::at_moment(Moment moment, const JobId& id) const {
    const Node& n = nodes_.at(home);
    const HomeJob* job = n.up ? n.home->find(id) : nullptr;
    if (!job) return false;
    const auto copy = world_.capsules.find({destination, {id, job->to_epoch}});
    const bool fills =
        copy != world_.capsules.end() && copy->second.progressing() && copy->second.filling;
    switch (moment) {
        case Moment::prepare: return job->step == MoveStep::prepare;
        case Moment::transfer: return job->step == MoveStep::transfer;
        case Moment::kill_old: return job->step == MoveStep::kill_old;
        case Moment::release: return job->step == MoveStep::release && !fills;
        case Moment::filling: return job->step == MoveStep::release && fills;
        case Moment::count_: return false;
    }
    return false;
}

void Cluster::strike(Victim victim, const JobId& id) {
    const HomeJob job = *node(home).home->find(id);
    const auto cut = [this](const NodeName& far) {
        cut_.insert({home, far});
        break_link(home, far);
        after(*outage_, [this, far] { cut_.erase({home, far}); });
    };
    switch (victim) {
        case Victim::source_agentd: return crash(node(source));
        case Victim::destination_agentd: return crash(node(destination));
        case Victim::home_agentd: return crash(node(home));
        case Victim::source_criu: criu_dies_on_ = source; return;
        case Victim::destination_criu: criu_dies_on_ = destination; return;
        case Victim::source_link: return cut(source);
        case Victim::destination_link: return cut(destination);
        case Victim::transfer: transfer_breaks_ = true; return;
        case Victim::source_pid1: return kill_pid1(source, {id, job.epoch});
        case Victim::destination_pid1: return kill_pid1(destination, {id, job.to_epoch});
        case Victim::count_: return;
    }
}

// Long: one play, from its beginning to what it shows.
char Cluster::run_one_fault(Moment moment, Victim victim, MoveForm form, bool fenced,
                            std::string& failure) {
    faults_ = false;
    form_ = form;
    fenced_ = fenced;
    limits_.checkpoint_every = {};
    limits_.lease = {};  // an outage here is shorter than that
    // longer than transfer_patience
    outage_ = rng_.chance(0.5) ? Nanos::from_ms(50) : Nanos::from_s(90);
    names_ = {home, source, destination};
    nodes_.clear();
    for (const NodeName& name : names_) nodes_[name].name = name;
    for (const NodeName& name : names_) boot(node(name));
    JobId id;
    home_step(node(home), [&](Home& h, home::Outputs& out) {
        Submission s;
        s.spec.launch.path = "/bin/job";
        s.spec.launch.cwd = "/";
        s.spec.launch.argv = {s.spec.launch.path};
        s.terms.max_price = Money::units(1);
        const auto submitted = h.submit(s, now_, out);
        MUST(submitted.has_value());
        id = *submitted;
    });
    world_.truths[id].work = Nanos::from_s(100'000).ns;
    const auto job = [&] { return node(home).up ? node(home).home->find(id) : nullptr; };
    const auto settled = [&](Nanos span) {
        if (!run_until(now_ + span)) failure = world_.failure;
        if (failure.empty() && !job()) failure = "its home does not know the job";
        return failure.empty();
    };
    order_to(id, source);
    if (!settled(Nanos::from_s(5))) return '?';
    if (job()->phase != JobPhase::running) failure = "it does not start";
    bool seen = false, struck = false;
    watch_ = [&] {
        if (seen || !at_moment(moment, id)) return;
        seen = true;
        // Somewhere in the step, not only at its beginning.
        after(Nanos::from_us(rng_.between(0, rng_.chance(0.5) ? 60'000 : 2'000)), [&] {
            if (!at_moment(moment, id)) return;
            struck = true;
            say("-- ", moment_name(moment), ": ", victim_name(victim));
            strike(victim, id);
        });
    };
    order_to(id, destination);
    if (!settled(quiet_time)) return '?';
    watch_ = nullptr;
    if (!struck) return '-';
    if (job()->phase == JobPhase::finished && world_.truths[id].destroyed) return 'E';
    const NodeName at = job()->at.node;
    if (job()->phase == JobPhase::running) {
        const auto copy = world_.capsules.find({at, {id, job()->epoch}});
        if (copy == world_.capsules.end() || !copy->second.progressing())
            failure = "it is said to run, and does not";
        for (const auto& [place, c] : world_.capsules)
            if (place.first != at) failure = "a capsule is left on " + place.first;
        for (const auto& [place, i] : world_.images)
            if (place.first != at) failure = "an image is left on " + place.first;
        return at == source ? 'S' : 'D';
    }
    if (job()->phase != JobPhase::frozen || at != source) {
        failure = "it is " + std::string(to_string(job()->phase)) + " at " + at;
        return '?';
    }
    criu_dies_on_.clear();
    order_to(id, destination);
    if (!settled(thaw_time)) return '?';
    if (job()->phase != JobPhase::running || job()->at.node != destination)
        failure = "it does not thaw";
    return 'F';
}

}  // namespace souk::sim
