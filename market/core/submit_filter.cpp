// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/submit_filter.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/text.hpp"
#include "market/core/needs.hpp"

namespace souk::market {
namespace {

// Joins what its user needs and what the filter has added.
std::string joint_needs(const Job& job, const FilterWord& word) {
    const std::string& own = *job.record.report.terms.needs;
    const std::string& added = word.needs;
    if (added.empty()) return {};
    return own.empty() ? added : "(" + own + ") and (" + added + ")";
}

bool has_not_passed(const Job& job) {
    const FilterWord::State state = job.record.filter->state;
    return state == FilterWord::State::asked || state == FilterWord::State::refused;
}

// It runs here or is with a peer, and goes on whatever the filter says.
bool goes_on(const Job& job) {
    return is_lent(job) || (job.phase() != JobPhase::waiting && job.phase() != JobPhase::frozen);
}

// Memory that a running job is found to have is no word of its user's.
bool is_changed(const Job& job, JobTerms before) {
    const JobTerms& now = job.record.report.terms;
    if (goes_on(job)) before.memory_mb = now.memory_mb;
    return now != before;
}

}  // namespace

bool SubmitFilter::keeps(const Job& job) { return has_not_passed(job) && !goes_on(job); }

Reason SubmitFilter::why(const Job& job) {
    const FilterWord& word = *job.record.filter;
    if (word.state == FilterWord::State::refused)
        return Reason(ReasonCode::filter_refused).with(Figure::cause, word.why);
    if (word.state != FilterWord::State::asked) return {};
    if (word.why.empty()) return ReasonCode::filter_asked;
    return Reason(ReasonCode::filter_silent).with(Figure::cause, word.why);
}

bool SubmitFilter::is_barred(const Job& job, const std::string& site) {
    if (has_not_passed(job)) return true;
    const std::string& bars = job.record.filter->bars;
    if (bars.empty()) return false;
    const std::vector<std::string> sites = comma_parts(bars);
    return bars == "any" || std::ranges::find(sites, site) != sites.end();
}

Status SubmitFilter::can_join(const Job& job, const FilterWord& word) {
    const std::string needs = joint_needs(job, word);
    if (needs.empty()) return {};
    const auto joined = Needs::parse(needs);
    return joined ? Status{} : wrap("needs, with those of its user", joined.error());
}

void SubmitFilter::overruled(Job& job) {
    if (job.record.filter->hold) job.record.filter.edit().hold = false;
}

void SubmitFilter::changed(Job& job) {
    job.joint_needs = joint_needs(job, *job.record.filter);
    book_.save(job);
    work_.touch(job);
    notes_.of(job);
}

void SubmitFilter::resume(Job& job) {
    if (has_not_passed(job) && !context_.options.submit_filter) {
        job.record.filter.clear();
        book_.save(job);
    }
    job.joint_needs = joint_needs(job, *job.record.filter);
    if (job.record.filter->state == FilterWord::State::asked) due_.insert(job.id());
}

void SubmitFilter::ask(Job& job) {
    FilterWord& word = job.record.filter.edit();
    word.state = FilterWord::State::asked;
    word.why.clear();
    due_.insert(job.id());
    changed(job);
}

void SubmitFilter::came(Job& job) {
    if (context_.options.submit_filter && of_site(job.id().home).site.empty()) ask(job);
}

void SubmitFilter::reported(Job& job, const JobTerms& before) {
    const bool is_new = is_changed(job, before) && job.phase() != JobPhase::finished &&
                        job.record.filter->state != FilterWord::State::asked;
    if (is_new && context_.options.submit_filter && of_site(job.id().home).site.empty())
        return ask(job);
    if (!job.record.filter->needs.empty()) job.joint_needs = joint_needs(job, *job.record.filter);
}

bool SubmitFilter::answered(Job& job, FilterWord word) {
    if (job.record.filter->state != FilterWord::State::asked) return false;
    const bool was_held = job.record.filter->hold;
    job.record.filter = std::move(word);
    // Its user does not lift it: an operator releases the job, or the filter's next answer does.
    Hold& hold = job.record.hold;
    const bool is_free = hold == Hold::none || hold == Hold::by_user;
    if (!job.record.filter->hold) {
        if (was_held && hold == Hold::frozen) hold = Hold::none;
    } else if (is_free && !goes_on(job)) {
        hold = Hold::frozen;
    } else if (!was_held || hold != Hold::frozen) {
        overruled(job);  // it is an operator's hold, or none
    }
    changed(job);
    return true;
}

bool SubmitFilter::silent(Job& job, const std::string& why) {
    if (job.record.filter->state != FilterWord::State::asked) return false;
    if (job.record.filter->why == why) return true;
    job.record.filter.edit().why = why;
    changed(job);
    return true;
}

bool SubmitFilter::let_pass(Job& job) {
    if (!has_not_passed(job)) return false;
    job.record.filter = FilterWord{};
    job.record.filter.edit().state = FilterWord::State::passed;
    changed(job);
    return true;
}

}  // namespace souk::market
