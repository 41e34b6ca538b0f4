// SPDX-License-Identifier: GPL-2.0-or-later
// Home: what tools and the market say. What guests and the time say: home_guests.cpp; what comes of
// it for a job: home_steps.cpp.
#include "agentd/core/home.hpp"

#include <utility>

#include "agentd/core/home_splice.hpp"

namespace souk {

using namespace home;

Home::Home(const NodeName& node, Limits limits)
    : node_(node),
      limits_(std::move(limits)),
      records_(node, {.jobs_max = limits_.jobs_max,
                      .finished_max = limits_.finished_max,
                      .addresses = limits_.addresses}),
      runs_({limits_.step_patience, limits_.transfer_patience}),
      moves_({limits_.step_patience, limits_.transfer_patience}),
      checkpoints_({limits_.checkpoint_every, limits_.transfer_patience, limits_.address,
                    limits_.address_known}),
      evacuations_({node, limits_.expel_patience, limits_.transfer_patience}),
      budget_(limits_.warn_permille, limits_.warn_span),
      expels_(limits_.expel_patience),
      wakes_(node, limits_.wake),
      gangs_(limits_.step_patience) {}

void Home::configured(const Limits& limits) {
    limits_.memory_default_mb = limits.memory_default_mb;
    limits_.wake = limits.wake;
    wakes_.configured(limits.wake);
}

void Home::load(HomeJob job) {
    clock_.loaded(job, limits_.boot);
    HomeJob& kept = records_.load(std::move(job));
    groups_.add(kept);
    gangs_.add(kept);
    reindex(kept.id.seq);
}

void Home::restarted(Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::restarted); });
    const Step step(*this, now, out);
    leases_.begin(now);
    for (auto& [seq, job] : records_.all()) {
        const Reindex indexed(*this, seq);
        restarted_cut(job, step.turn);
        restarted_set(job, step.turn);
        if (job.cancelled && job.phase == JobPhase::waiting)
            end_by_cancel(job, step.turn);
        else
            conclude(job, moves_.restarted(job, step.turn), step.turn);
        if (job.phase == JobPhase::finished) continue;
        runs_.restarted(job, now);
        checkpoints_.restarted(job, now);
        evacuations_.restarted(job, step.turn);
        if (job.splice.due) out.push_back(GoneBack{job.id});
        restarted_gang(job, step.turn);
        if (job.going_back && !job.cancelled && job.phase != JobPhase::finished)
            (void)goes_on_back(job, step.turn);
    }
    records_.trim(step.turn);
}

// -------------------------------------------------------------------------------------------------
// tools

void Home::give_default_memory(JobTerms& terms) const {
    if (terms.memory_mb > 0 || limits_.memory_default_mb == 0) return;
    terms.memory_mb = limits_.memory_default_mb;
    terms.memory_by_default = true;
}

namespace {

// The files that take its output, by its id.
Status name_output(HomeJob& record, const Submission& s) {
    const bool of_array = record.group.first || record.group.array != 0;
    const auto index = of_array ? std::optional(record.group.index) : std::nullopt;
    record.out_file = output_file_name(s.out_file, record.id, index);
    record.err_file = output_file_name(s.err_file, record.id, index);
    constexpr size_t name_max = 4095;  // as of a path (PATH_MAX)
    for (const std::string* name : {&record.out_file, &record.err_file})
        if (name->size() > name_max)
            return fail("the name of its output file has more than " + std::to_string(name_max) +
                        " bytes");
    return {};
}

}  // namespace

Result<JobId> Home::submit(Submission s, Nanos now_unix, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::submit, next_id()); });
    const Step step(*this, Nanos{}, out);  // it has not run
    HomeJob record;
    record.spec = std::move(s.spec);
    record.spec.lease = limits_.lease;
    if (record.spec.grace.ns == 0) record.spec.grace = limits_.grace;
    if (record.spec.checkpoint_every.ns == 0)
        record.spec.checkpoint_every = limits_.checkpoint_every;  // its nodes are to know
    record.terms = std::move(s.terms);
    give_default_memory(record.terms);
    record.name = std::move(s.name);
    record.user = std::move(s.user);
    record.token = s.token;
    record.submitted = now_unix;
    StoryStep submitted =
        step.turn.step(StoryStep::What::submitted, {}, {}, record.terms.max_price);
    submitted.at = now_unix;
    record.story.add(std::move(submitted));
    record.id = next_id();
    record.group = s.group;
    record.disk_secret = std::move(s.disk_secret);
    TRY(name_output(record, s));
    TRY(HomeGroups::check(record, records_.all()));
    TRY(HomeGangs::check(record, records_.all()));
    TRY_ASSIGN(HomeJob* const job, records_.add(std::move(record)));
    groups_.add(*job);
    gangs_.add(*job);
    std::vector<uint64_t> told = gangs_.complete(*job, records_.all());
    if (told.empty()) told.push_back(job->id.seq);
    for (const uint64_t seq : told) {
        step.turn.persist(records_.at(seq));
        step.turn.report(records_.at(seq));
    }
    return job->id;
}

Status Home::change(const JobId& id, const JobTerms& terms, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::change, id); });
    HomeJob* job = records_.find(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    if (terms.cpus != job->terms.cpus && job->phase != JobPhase::waiting)
        return fail(CauseCode::not_possible,
                    "job " + id.text() + " has started: its CPUs cannot change");
    if (HomeGangs::is_component(*job))
        return fail(
            CauseCode::not_possible,
            "job " + id.text() +
                " is of several components: its terms cannot change yet; cancel it, and submit "
                "it with others");
    const Reindex indexed(*this, id.seq);
    const Step step(*this, now, out);
    job->terms = terms;
    give_default_memory(job->terms);
    job->story.add(step.turn.step(StoryStep::What::changed, {}, {}, terms.max_price));
    step.turn.persist(*job);
    step.turn.report(*job);
    return {};
}

Status Home::cancel(const JobId& id, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::cancel, id); });
    HomeJob* job = records_.find(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    const Reindex indexed(*this, id.seq);
    cancel_all(*job, Step(*this, now, out).turn);
    return {};
}

Status Home::signal(const JobId& id, int32_t signal, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::signal, id); });
    const HomeJob* job = find(id);
    if (!job) return fail(CauseCode::not_found, "no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished)
        return fail(CauseCode::not_possible, "job " + id.text() + " is finished");
    TRY(signals_.add(*job, signal));
    signals_.send(*job, Step(*this, Nanos{}, out).turn);
    return {};
}

void Home::spliced(const JobId& id, const uint64_t output_end[2], uint64_t input_end,
                   const std::string& files, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::spliced, id); });
    HomeJob* job = records_.find(id);
    if (!job || !job->splice.due) return;
    const Reindex indexed(*this, id.seq);
    const Step step(*this, now, out);
    const bool waited = HomeOrders::files_come_first(*job);
    splice(*job, output_end, input_end, files);
    step.turn.persist(*job);
    if (waited) steady(*job, step.turn);  // what the market ordered meanwhile
}

// -------------------------------------------------------------------------------------------------
// market

void Home::market_up(Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::market_up); });
    const Step step(*this, now, out);
    budget_.market_is_up(true);
    wakes_.market_is_up();
    for (const auto& [seq, job] : jobs())
        if (!job.settled) step.turn.report(job);
}

void Home::market_down() {
    const Scene scene(*this, nullptr, [&] { return trace_in(Input::market_down); });
    budget_.market_is_up(false);
    for (const auto& [seq, job] : jobs())
        if (job.terms.budget.micro > 0 || job.day_limit.micro > 0) reindex(seq);
}

void Home::order(const Order& order, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_order(order); });
    HomeJob* job = records_.find(order.id);
    if (records_.is_aside(order.id))
        return out.push_back(ToMarketMsg{OrderFailed{
            order.id, order.seq, order.node,
            Cause(CauseCode::unsound, "its record at its home " + node_ +
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
    if (order.seq > job->order_seq && wakes_.keeps(*job, order, now)) return;
    carry_out(order, now, out);
}

void Home::carry_out(const Order& order, Nanos now, Outputs& out) {
    HomeJob* const job = records_.find(order.id);
    if (!job) return;
    const Reindex indexed(*this, job->id.seq);
    const Step step(*this, now, out);
    switch (orders_.came(*job, order, step.turn)) {
        case HomeOrders::Deed::nothing: return;
        case HomeOrders::Deed::report: return step.turn.report(*job);
        case HomeOrders::Deed::take: return take(*job, order, step.turn);
        case HomeOrders::Deed::cancel: return cancel_all(*job, step.turn);
        case HomeOrders::Deed::give_up:
            return conclude(*job, runs_.give_up(*job, step.turn), step.turn);
    }
}

void Home::note(const JobNote& note, Nanos now, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::note, note.id, {}, {}, note.comment); });
    HomeJob* job = records_.find(note.id);
    if (!job) return;
    const Reindex indexed(*this, job->id.seq);
    const Step step(*this, now, out);
    // A market that has not taken the job knows nothing of what it costs.
    const bool knows = note.code != "book_full";
    const bool new_price = knows && HomeOrders::note_price(*job, note, step.turn);
    const bool new_day =
        knows && (job->day_limit != note.day_limit || job->day_cost != note.day_cost);
    if (knows) budget_.take_day(*job, note);
    // so that it holds after a restart
    if (new_price || new_day) step.turn.persist(*job, Durable::later);
    if (!note.comment.empty() && note.comment != job->comment) {
        job->comment = note.comment;
        step.turn.tell(*job, Tell::What::comment, job->comment);
    }
    if (!note.settled || job->settled || job->phase != JobPhase::finished) return;
    job->settled = true;
    forget(job->id.seq);
    step.turn.persist(*job, Durable::later);  // the market says it again
    records_.settled(*job);
    records_.trim(step.turn);
}

}  // namespace souk
