// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/submit_desk.hpp"

#include <memory>

#include "market/wire/program_words.hpp"

namespace souk {
namespace {

bool is_asked_about(const market::Job* job) {
    return job && job->phase() != JobPhase::finished &&
           job->record.filter->state == market::FilterWord::State::asked;
}

}  // namespace

void SubmitDesk::look() {
    for (const JobId& id : market_.take_unfiltered()) add(id);
    feed();
}

void SubmitDesk::add(const JobId& id) {
    const market::Job* const job = market_.find(id);
    if (is_asked_about(job))
        turns_.add(id, job->record.report.uid);
    else
        turns_.settled(id);
}

// The program's own queue stays short, so that a question of a new home comes soon.
void SubmitDesk::feed() {
    while (asked_ < asked_most) {
        const std::optional<JobId> id = turns_.next();
        if (!id) return;
        if (!is_asked_about(market_.find(*id)))
            turns_.settled(*id);
        else if (!ask(*id))
            return again_later(*id);
    }
}

bool SubmitDesk::ask(const JobId& id) {
    const auto asked = std::make_shared<JobTerms>();  // when its turn has come
    const bool taken = program_.ask(
        "",
        [this, id, asked]() -> std::string {
            const market::Job* const now = market_.find(id);
            if (!is_asked_about(now)) {
                --asked_;
                turns_.settled(id);
                feed();
                return "";
            }
            *asked = now->record.report.terms;
            return program_words::ask_submit(*now);
        },
        [this, id, asked](const Result<std::string>& answer) {
            --asked_;
            answered(id, *asked, answer);
            feed();
        });
    if (taken) ++asked_;
    return taken;
}

void SubmitDesk::answered(const JobId& id, const JobTerms& asked,
                          const Result<std::string>& answer) {
    const market::Job* const job = market_.find(id);
    if (job && job->record.report.terms != asked) return add(id);  // its user wants something else
    Result<market::FilterWord> word =
        answer ? program_words::submit_answer(*answer)
               : Result<market::FilterWord>(tl::unexpected(answer.error()));
    if (job && word)
        if (const Status joins = market::SubmitFilter::can_join(*job, *word); !joins)
            word = tl::unexpected(joins.error());
    if (answer && !word) program_.note_nonsense(word.error());
    market_.filtered(id, word);
    if (word)
        turns_.settled(id);
    else
        again_later(id);
    steps_.wake();
}

void SubmitDesk::again_later(const JobId& id) {
    const market::Job* const job = market_.find(id);
    if (!is_asked_about(job)) return turns_.settled(id);
    turns_.later(id, job->record.report.uid, Loop::now());
    arm();
}

void SubmitDesk::arm() {
    if (turns_.wakes() == Nanos::never()) return timer_.cancel();
    timer_ = loop_.at(turns_.wakes(), [this] {
        turns_.tick(Loop::now());
        feed();
        arm();
    });
}

}  // namespace souk
