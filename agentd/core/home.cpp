// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_machines.hpp"
#include "agentd/core/home_splice.hpp"
#include "agentd/core/home_steps.hpp"
#include "agentd/core/home_trace.hpp"
#include "market/core/needs.hpp"
#include "market/core/site_offer.hpp"

namespace souk {

using namespace home;

// The parts refer to each other, so they stay where they are when a Home is moved.
struct Home::Parts {
    Parts(NodeName name, Limits given)
        : node(std::move(name)), limits(std::move(given)), m(node, limits), steps(m, limits) {}
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;

    NodeName node;
    Limits limits;
    HomeMachines m;
    HomeSteps steps;
};

Home::Home(const NodeName& node, Limits limits)
    : parts_(std::make_unique<Parts>(node, std::move(limits))) {}
Home::~Home() = default;
Home::Home(Home&&) noexcept = default;
Home& Home::operator=(Home&&) noexcept = default;

HomeTurn Home::turn(Nanos now, Outputs& out) const {
    return {now, unix_now_, parts_->node, parts_->limits.boot, parts_->m.reports, out};
}

void Home::configured(const Limits& limits) {
    parts_->limits.memory_default_mb = limits.memory_default_mb;
    parts_->limits.wake = limits.wake;
    parts_->m.wakes.configured(limits.wake);
}

void Home::load(HomeJob job) {
    HomeMachines& m = parts_->m;
    m.clock.loaded(job, parts_->limits.boot);
    HomeJob& kept = m.records.load(std::move(job));
    m.groups.add(kept);
    m.gangs.add(kept);
    parts_->steps.reindex(kept.id.seq);
}

void Home::set_aside(uint64_t seq) { parts_->m.records.set_aside(seq); }

void Home::restarted(Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::restarted); });
    const HomeTurn turn = this->turn(now, out);
    parts_->m.leases.begin(now);
    for (auto& [seq, job] : parts_->m.records.all()) {
        const Reindexed indexed(parts_->steps, seq);
        parts_->steps.restarted(job, turn);
    }
    parts_->m.records.trim(turn);
}

// -------------------------------------------------------------------------------------------------
// tools

void Home::give_default_memory(JobTerms& terms) const {
    const int64_t memory_mb = parts_->limits.memory_default_mb;
    if (terms.memory_mb > 0 || memory_mb == 0) return;
    terms.memory_mb = memory_mb;
    terms.memory_by_default = true;
}

namespace {

// Refuses needs that are no expression, before anybody waits for nodes that are so.
Status can_be_read(const JobTerms& terms) {
    const Booking& b = *terms.booking;
    if (b.start.ns > 0 && !b.asks())
        return fail(CauseCode::invalid, "--start needs --for: how long the place is kept");
    if (b.promise && (b.start.ns > 0 || b.early || b.span.ns > 0 || b.holds || !b.within.empty()))
        return fail(CauseCode::invalid,
                    "--promise is not possible with --start, --for, --allocate and --in");
    if (b.promise && terms.finish.ns <= 0)
        return fail(CauseCode::invalid, "--promise needs --finish: the deadline");
    if (!b.within.empty() && (b.asks() || b.holds))
        return fail(CauseCode::invalid, "--in is not possible with --for or --allocate");
    if (!b.within.empty() && !parse_job_id(b.within))
        return fail(CauseCode::invalid, "--in: '" + b.within + "' is no id of a job");
    if (const auto resources = parse_resources(*terms.resources); !resources)
        return wrap("--resource", resources.error());
    if (!terms.resources.empty() && (b.holds || !b.within.empty()))
        return fail(CauseCode::invalid,
                    "--resource is not possible with --allocate and --in: what runs in a place is "
                    "given no named resource of it; --for sells them to a job of its own");
    if (const Status sites = check_site_wish(terms.sites->names); !sites)
        return wrap("--sites", sites.error());
    if (terms.needs->empty()) return {};
    const auto needs = market::Needs::parse(*terms.needs);
    return needs ? Status{} : wrap("--needs", needs.error());
}

// Puts the id of the job into the names of the files that take its output.
Status name_output(HomeJob& record, const std::string& out_file, const std::string& err_file) {
    const bool of_array = record.group.first || record.group.array != 0;
    const auto index = of_array ? std::optional(record.group.index) : std::nullopt;
    const uint64_t first = of_array && !record.group.first ? record.group.array : record.id.seq;
    const OutputSigns signs{record.id, index, {record.id.home, first}, record.name, record.user};
    record.out_file = output_file_name(out_file, signs);
    record.err_file = output_file_name(err_file, signs);
    if (record.out_file.empty() != out_file.empty() || record.err_file.empty() != err_file.empty())
        return fail(CauseCode::invalid, "the name of its output file is empty: it has no --name");
    constexpr size_t name_max = 4095;  // PATH_MAX
    for (const std::string* name : {&record.out_file, &record.err_file})
        if (name->size() > name_max)
            return fail("the name of its output file has more than " + std::to_string(name_max) +
                        " bytes");
    return {};
}

}  // namespace

HomeJob Home::record_of(Submission s, Nanos now_unix, const HomeTurn& turn) const {
    const Limits& limits = parts_->limits;
    HomeJob record;
    record.spec = std::move(s.spec);
    record.spec.lease = limits.lease;
    if (record.spec.grace.ns == 0) record.spec.grace = limits.grace;
    if (record.spec.checkpoint_every.ns == 0)
        record.spec.checkpoint_every = limits.checkpoint_every;  // its nodes are to know
    record.terms = std::move(s.terms);
    give_default_memory(record.terms);
    record.name = std::move(s.name);
    record.user = std::move(s.user);
    record.token = s.token;
    record.submitted = now_unix;
    StoryStep submitted = turn.step(StoryStep::What::submitted, {}, {}, record.terms.max_price);
    submitted.at = now_unix;
    record.story.add(std::move(submitted));
    record.id = next_id();
    record.group = s.group;
    record.tries = std::move(s.tries);
    record.tries.used = 0;
    record.disk_secret = std::move(s.disk_secret);
    return record;
}

Result<JobId> Home::submit(Submission s, Nanos now_unix, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::submit, next_id()); });
    const HomeTurn turn = this->turn(Nanos{}, out);  // the job has not run
    HomeMachines& m = parts_->m;
    const std::string out_file = s.out_file, err_file = s.err_file;
    HomeJob record = record_of(std::move(s), now_unix, turn);
    TRY(can_be_read(record.terms));
    if (!record.terms.resources.empty() && HomeGangs::is_component(record))
        return fail(CauseCode::invalid,
                    "--resource is for jobs of one component: those of several get none");
    if (record.tries.most > 0 && HomeGangs::is_component(record))
        return fail(CauseCode::not_possible, "a job of several components is not run again");
    TRY(name_output(record, out_file, err_file));
    TRY(HomeGroups::check(record, m.records.all()));
    TRY(HomeGangs::check(record, m.records.all()));
    TRY_ASSIGN(HomeJob* const job, m.records.add(std::move(record)));
    m.groups.add(*job);
    m.gangs.add(*job);
    m.delays.submitted(*job);
    parts_->steps.reindex(job->id.seq);
    std::vector<uint64_t> told = m.gangs.complete(*job, m.records.all());
    if (told.empty()) told.push_back(job->id.seq);
    for (const uint64_t seq : told) {
        turn.persist(m.records.at(seq));
        turn.report(m.records.at(seq));
    }
    return job->id;
}

Status Home::may_change(const HomeJob& job, const JobTerms& wanted) const {
    const std::string name = "job " + job.id.text();
    if (job.phase == JobPhase::finished)
        return fail(CauseCode::not_possible, name + " is finished");
    if (wanted.cpus != job.terms.cpus && job.phase != JobPhase::waiting)
        return fail(CauseCode::not_possible, name + " has started: its CPUs cannot change");
    // Its limit there is what it was ordered with, and its next one may be more.
    if (wanted.memory_mb < job.terms.memory_mb && job.phase != JobPhase::waiting &&
        job.phase != JobPhase::frozen)
        return fail(CauseCode::not_possible, name + " has started: its memory cannot shrink");
    // The market has counted what it was ordered to begin with.
    if (wanted.resources != job.terms.resources &&
        (job.phase != JobPhase::waiting || parts_->m.orders.pending(job)))
        return fail(CauseCode::not_possible,
                    name + " has started: its named resources cannot change");
    return can_be_read(wanted);
}

Status Home::change(const JobId& id, const JobTerms& terms, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::change, id); });
    HomeJob* job = parts_->m.records.find(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on this node");
    JobTerms wanted = terms;
    give_default_memory(wanted);
    TRY(may_change(*job, wanted));
    std::map<uint64_t, JobTerms> all{{id.seq, std::move(wanted)}};
    if (HomeGangs::is_component(*job)) {
        TRY_ASSIGN(all, parts_->m.gangs.changed(*job, all.at(id.seq), parts_->m.records.all()));
    }
    const HomeTurn turn = this->turn(now, out);
    for (auto& [seq, changed] : all) {
        HomeJob* const one = parts_->m.records.find({id.home, seq});
        const Reindexed indexed(parts_->steps, seq);
        one->terms = std::move(changed);
        one->story.add(turn.step(StoryStep::What::changed, {}, {}, one->terms.max_price));
        turn.persist(*one);
        turn.report(*one);
    }
    return {};
}

Status Home::cancel(const JobId& id, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::cancel, id); });
    HomeJob* job = parts_->m.records.find(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    const Reindexed indexed(parts_->steps, id.seq);
    parts_->steps.cancel_all(*job, turn(now, out));
    return {};
}

Status Home::signal(const JobId& id, int32_t signal, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::signal, id); });
    const HomeJob* job = find(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    TRY(parts_->m.signals.add(*job, signal));
    parts_->m.signals.send(*job, turn(Nanos{}, out));
    return {};
}

void Home::spliced(const JobId& id, const uint64_t output_end[2], uint64_t input_end,
                   const std::string& files, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::spliced, id); });
    HomeJob* job = parts_->m.records.find(id);
    if (!job || !job->splice.due) return;
    const Reindexed indexed(parts_->steps, id.seq);
    const HomeTurn turn = this->turn(now, out);
    const bool waited = HomeOrders::files_come_first(*job);
    splice(*job, output_end, input_end, files);
    turn.persist(*job);
    if (waited) parts_->steps.steady(*job, turn);  // what the market ordered meanwhile
}

// -------------------------------------------------------------------------------------------------
// market

void Home::market_up(Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::market_up); });
    const HomeTurn turn = this->turn(now, out);
    parts_->m.budget.market_is_up(true);
    parts_->m.wakes.market_is_up();
    for (const auto& [seq, job] : jobs())
        if (!job.settled) turn.report(job);
}

void Home::report(const JobId& id, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::market_up, id); });
    const HomeJob* job = find(id);
    if (job && !job->settled) turn(now, out).report(*job);
}

void Home::market_down() {
    const Scene scene(*this, nullptr, [&] { return trace_in(Input::market_down); });
    parts_->m.budget.market_is_up(false);
    for (const auto& [seq, job] : jobs())
        if (job.terms.budget.micro > 0 || job.day_limit.micro > 0) parts_->steps.reindex(seq);
}

void Home::order(const Order& order, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_order(order); });
    HomeJob* job = parts_->m.records.find(order.id);
    if (parts_->m.records.is_aside(order.id))
        return out.push_back(ToMarketMsg{OrderFailed{
            order.id, order.seq, order.node,
            Cause(CauseCode::unsound, "its record at its home " + parts_->node +
                                          " cannot be read, and is set aside (souk doctor)")}});
    if (!job) {
        JobReport gone;
        gone.id = order.id;
        gone.phase = JobPhase::finished;
        gone.terms.max_price = Money{1};  // every report states a price
        gone.order_seq = order.seq;
        gone.why = {CauseCode::home_forgot, "its home node does not know it"};
        out.push_back(ToMarketMsg{std::move(gone)});
        return;
    }
    if (order.seq > job->order_seq && parts_->m.wakes.keeps(*job, order, now)) return;
    carry_out(order, now, out);
}

void Home::carry_out(const Order& order, Nanos now, Outputs& out) {
    HomeJob* const job = parts_->m.records.find(order.id);
    if (!job) return;
    const Reindexed indexed(parts_->steps, job->id.seq);
    parts_->steps.carry_out(*job, order, turn(now, out));
}

void Home::note(const JobNote& note, Nanos now, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::note, note.id, {}, {}, note.comment); });
    HomeJob* job = parts_->m.records.find(note.id);
    if (!job) return;
    const Reindexed indexed(parts_->steps, job->id.seq);
    const HomeTurn turn = this->turn(now, out);
    // A market that has not taken the job knows nothing of what it costs.
    const bool knows = note.code != "book_full";
    const bool new_price = knows && HomeOrders::note_price(*job, note, turn);
    const bool new_day =
        knows && (job->day_limit != note.day_limit || job->day_cost != note.day_cost);
    if (knows) parts_->m.budget.take_day(*job, note);
    const bool new_end = knows && job->place_ends != note.place_ends;
    if (new_end) job->place_ends = note.place_ends;
    if (new_end) parts_->m.time_limits.place_changed(job->id.seq);
    // so that it holds after a restart
    if (new_price || new_day || new_end) turn.persist(*job, Durable::later);
    if (!note.comment.empty() && note.comment != job->comment) {
        job->comment = note.comment;
        turn.tell(*job, Tell::What::comment, job->comment);
    }
    if (!note.settled || job->settled || job->phase != JobPhase::finished) return;
    job->settled = true;
    parts_->steps.forget(job->id.seq);
    turn.persist(*job, Durable::later);  // the market says it again
    parts_->m.records.settled(*job);
    parts_->m.records.trim(turn);
}

void Home::own_address(std::string address) {
    parts_->m.checkpoints.own_address(std::move(address));
}
void Home::free_memory(int64_t bytes) { parts_->m.wakes.free_memory(bytes); }
void Home::free_disk(int64_t bytes) { parts_->m.evacuations.free_disk(bytes); }

// -------------------------------------------------------------------------------------------------
// guests

void Home::guest_up(const NodeName& node, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::guest_up, {}, {}, node); });
    const HomeTurn turn = this->turn(now, out);
    for (const uint64_t seq : parts_->m.records.of_guest(node))
        ask(parts_->m.records.at(seq), node, turn);
}

// The node is to tell again how its copy of the job is, or gets its last command again.
void Home::ask(const HomeJob& job, const NodeName& node, const HomeTurn& turn) const {
    if (job.phase != JobPhase::finished && job.at.node == node) {
        GuestVerb verb = GuestVerb::query;
        if (job.phase == JobPhase::freezing && job.cut == CutStep::none) verb = GuestVerb::freeze;
        if (job.cut == CutStep::decided) verb = GuestVerb::commit;
        if (job.step == MoveStep::prepare && !job.from_frozen) verb = GuestVerb::prepare_dump;
        if (job.step == MoveStep::kill_old) verb = GuestVerb::commit;
        if (verb == GuestVerb::freeze)
            parts_->m.runs.send_freeze(job, turn);
        else
            turn.send(job.at, job.id, job.epoch, verb);
    }
    const auto query = [&](const Peer& peer, Epoch epoch) {
        if (peer.node == node) turn.send(peer, job.id, epoch, GuestVerb::query);
    };
    if (job.step != MoveStep::none) query(job.to, job.to_epoch);
    if (job.saving.epoch.n > 0) query(job.saving.peer, job.saving.epoch);
    if (job.evacuation.epoch.n > 0) query(job.evacuation.peer, job.evacuation.epoch);
    query(job.checkpoint.at, job.checkpoint.epoch);
    for (const Orphan& r : job.orphans) query(r.peer, r.epoch);
}

void Home::undelivered(const NodeName& node, const GuestCommand& command, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] {
        return trace_in(Input::undelivered, command.id, command.epoch, node,
                        to_string(command.verb));
    });
    HomeJob* job = parts_->m.records.find(command.id);
    if (!job) return;
    const Reindexed indexed(parts_->steps, job->id.seq);
    parts_->steps.undelivered(*job, node, command, turn(now, out));
}

void Home::expel(const NodeName& node, const Expel& expel, Nanos now, Outputs&) {
    const Scene scene(*this, nullptr,
                      [&] { return trace_in(Input::expel, expel.id, expel.epoch, node); });
    HomeJob* job = parts_->m.records.find(expel.id);
    if (!job || job->at.node != node || job->epoch != expel.epoch ||
        job->phase == JobPhase::finished)
        return;
    const Reindexed indexed(parts_->steps, job->id.seq);
    parts_->m.expels.wanted(*job, now);
    parts_->m.ends.hurry(*job, now);
}

void Home::files_used(const JobId& id, const FilesUse& use, Nanos now, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::files_used, id, {}, {}, use.waits); });
    HomeJob* job = parts_->m.records.find(id);
    if (!job || job->phase == JobPhase::finished || job->files_use == use) return;
    const HomeTurn turn = this->turn(now, out);
    const bool waited = !job->files_use.waits.empty(), waits = !use.waits.empty();
    job->files_use = use;
    turn.persist(*job, Durable::later);
    const bool runs = job->phase == JobPhase::running;
    if (runs && waits && !waited)
        turn.tell(*job, home::Tell::What::warning,
                  "its files are not reached from " + job->at.node + " (" + use.waits +
                      "): what asks for them waits");
    if (runs && waited && !waits)
        turn.tell(*job, home::Tell::What::warning, "its files are reached again");
    turn.report(*job);
}

void Home::heartbeat(const NodeName& node, const Heartbeat& heartbeat, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::heartbeat, {}, {}, node); });
    for (const uint64_t seq : parts_->m.records.of_guest(node))
        if (HomeJob& job = parts_->m.records.at(seq); job.at.node == node)
            parts_->m.leases.end_stretch(job, now);
    parts_->m.leases.answered(node, now);
    out.push_back(Answer{node, heartbeat});
}

void Home::guest_event(const NodeName& node, const GuestEvent& event, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_event(node, event); });
    const Reindexed indexed(parts_->steps, event.id.seq);
    parts_->steps.hear(node, event, turn(now, out));
}

// Jobs that were there are gone. A move to the node is given up, and a decided one from it is
// finished.
void Home::node_lost(const NodeName& node, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::node_lost, {}, {}, node); });
    const HomeTurn turn = this->turn(now, out);
    const Cause why = because(CauseCode::given_up_node, {{"node", node}});
    const HomeIndex::Jobs jobs = parts_->m.records.of_guest(node);
    for (const uint64_t seq : jobs) {
        const Reindexed indexed(parts_->steps, seq);
        HomeJob& job = parts_->m.records.at(seq);
        if (job.phase != JobPhase::finished) parts_->steps.node_lost(job, node, why, turn);
    }
}

// -------------------------------------------------------------------------------------------------
// time

Nanos Home::tick(Nanos now, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::tick); }, true);
    const HomeTurn turn = this->turn(now, out);
    for (const uint64_t seq : parts_->m.records.due(now)) {
        const Reindexed indexed(parts_->steps, seq);
        parts_->steps.tick(parts_->m.records.at(seq), turn);
    }
    wake(now, out);
    evacuate(now, out);
    return std::min(parts_->m.records.next_due(), parts_->m.wakes.due());
}

// Frozen jobs whose turn has come; and those whose turn does not come.
void Home::wake(Nanos now, Outputs& out) {
    while (const std::optional<Order> order = parts_->m.wakes.next()) carry_out(*order, now, out);
    const HomeTurn turn = this->turn(now, out);
    while (const std::optional<Order> order = parts_->m.wakes.overdue(now)) {
        HomeJob& job = parts_->m.records.at(order->id.seq);
        job.order_seq = order->seq;
        turn.fail_order(job, job.at.node, parts_->m.wakes.why_late());
    }
}

// Images whose turn it is to come here.
void Home::evacuate(Nanos now, Outputs& out) {
    const HomeTurn turn = this->turn(now, out);
    while (const std::optional<uint64_t> seq = parts_->m.evacuations.next()) {
        const Reindexed indexed(parts_->steps, *seq);
        HomeJob& job = parts_->m.records.at(*seq);
        parts_->m.evacuations.begin(job, parts_->m.checkpoints.own(parts_->node),
                                    parts_->m.checkpoints.why_not(job, turn), turn);
    }
}

// -------------------------------------------------------------------------------------------------
// views

void Home::describe(const JobId& id, Nanos now, JsonWriter& j) const {
    if (const HomeJob* const job = find(id)) parts_->m.describe(*job, now, j);
}

JobId Home::next_id() const { return parts_->m.records.next_id(); }
const HomeJob* Home::find(const JobId& id) const { return parts_->m.records.find(id); }
const HomeJob* Home::find_token(uint32_t uid, uint64_t token) const {
    return parts_->m.records.find_token(uid, token);
}
const std::map<uint64_t, HomeJob>& Home::jobs() const { return parts_->m.records.all(); }
Nanos Home::lease_due(const HomeJob& job) const { return parts_->m.leases.due(job); }
std::vector<NodeName> Home::guests_needed() const { return parts_->m.records.guests_needed(); }
bool Home::needs_guest(const NodeName& node) const {
    return !parts_->m.records.of_guest(node).empty();
}
std::optional<Peer> Home::peer_of(const NodeName& node) const {
    return parts_->m.records.peer_of(node);
}

TraceLine Home::trace_of(const Output& output) { return trace_output(output); }

void Home::trace_state(const JobId& id, Epoch) {
    if (id.home.empty()) return;
    const HomeJob* const job = find(id);
    tracer_.tell_state(id.text(), job ? trace_job(*job) : trace_gone(id));
}

}  // namespace souk
