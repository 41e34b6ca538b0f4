// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/submit_desk.hpp"

#include <algorithm>
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
    for (const JobId& id : market_.take_unfiltered()) ask(id);
}

void SubmitDesk::ask(const JobId& id) {
    const market::Job* const job = market_.find(id);
    if (!is_asked_about(job)) return void(pauses_.erase(id));
    const std::string owner = id.home + "/" + std::to_string(job->record.report.uid);
    const auto asked = std::make_shared<JobTerms>();  // when its turn has come
    const bool taken = program_.ask(
        owner,
        [this, id, asked]() -> std::string {
            const market::Job* const now = market_.find(id);
            if (!is_asked_about(now)) return "";
            *asked = now->record.report.terms;
            return program_words::ask_submit(*now);
        },
        [this, id, asked](const Result<std::string>& answer) { answered(id, *asked, answer); });
    if (!taken) again_later(id);
}

void SubmitDesk::answered(const JobId& id, const JobTerms& asked,
                          const Result<std::string>& answer) {
    const market::Job* const job = market_.find(id);
    if (job && job->record.report.terms != asked) return ask(id);  // its user wants something else
    Result<market::FilterWord> word =
        answer ? program_words::submit_answer(*answer)
               : Result<market::FilterWord>(tl::unexpected(answer.error()));
    if (answer && !word) program_.note_nonsense(word.error());
    market_.filtered(id, word);
    if (word)
        pauses_.erase(id);
    else
        again_later(id);
    steps_.wake();
}

void SubmitDesk::again_later(const JobId& id) {
    Nanos& pause = pauses_[id];
    pause = std::clamp(Nanos{pause.ns * 2}, pause_least, pause_most);
    due_.emplace(Loop::now() + pause, id);
    tick();
}

void SubmitDesk::tick() {
    const Nanos now = Loop::now();
    while (!due_.empty() && due_.begin()->first <= now) {
        const JobId id = due_.begin()->second;
        due_.erase(due_.begin());
        ask(id);
    }
    if (due_.empty())
        timer_.cancel();
    else
        timer_ = loop_.at(due_.begin()->first, [this] { tick(); });
}

}  // namespace souk
