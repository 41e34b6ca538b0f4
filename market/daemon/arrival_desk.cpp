// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/arrival_desk.hpp"

#include <utility>

namespace souk {
namespace {

Error refuses(const std::string& why) {
    return caused_by(CauseCode::not_allowed, Error{0, "the arrival filter refuses it: " + why});
}

// The log alone says why: the peer's market and its users hear this.
Error is_silent(const char* program) {
    return caused_by(CauseCode::not_possible,
                     Error{0, std::string("the ") + program + " gives no answer"});
}

Error is_busy() {
    return caused_by(CauseCode::too_many,
                     Error{0, "too much waits for the arrival filter: again in a moment"});
}

}  // namespace

void ArrivalDesk::ask(const program_words::Guest& guest, const Done& done) {
    if ((!filter_.is_set() && !users_.is_set()) || !terms_let_in(guest)) return done(Leave{});
    std::string key = program_words::ask_arrival(guest);
    if (const auto it = known_.find(key); it != known_.end() && Loop::now() < it->second.until)
        return done(it->second.leave);
    if (!filter_.is_set()) return filtered(guest, std::string(R"({"accept":true})"), done);
    const bool taken = filter_.ask(
        guest.site, [key = std::move(key)] { return key; },
        [this, guest, done](const Result<std::string>& answer) { filtered(guest, answer, done); });
    if (!taken) done(tl::unexpected(is_busy()));
}

bool ArrivalDesk::terms_let_in(const program_words::Guest& guest) const {
    const auto site = sites_.guest_site(guest.site);
    const JobTerms& t = guest.terms;
    return site && why_not_by(*site->terms, {guest.user, *t.project, t.cpus, t.max_price}, 0,
                              site->second_of_week)
                       .empty();
}

void ArrivalDesk::filtered(const program_words::Guest& guest, const Result<std::string>& answer,
                           const Done& done) {
    const std::string key = program_words::ask_arrival(guest);
    const auto word = answer ? program_words::arrival_answer(*answer)
                             : Result<program_words::Arrival>(tl::unexpected(answer.error()));
    if (!word) {
        if (answer) filter_.note_nonsense(word.error());
        return keep(key, tl::unexpected(is_silent("arrival filter")), done);
    }
    if (!word->no.empty()) return keep(key, tl::unexpected(refuses(word->no)), done);
    const Leave leave{word->least, {}};
    if (!users_.is_set()) return keep(key, leave, done);
    const bool taken = users_.ask(
        guest.site, [question = program_words::ask_user(guest)] { return question; },
        [this, key, leave, done](const Result<std::string>& user) {
            mapped(key, leave, user, done);
        });
    if (!taken) done(tl::unexpected(is_busy()));
}

void ArrivalDesk::mapped(const std::string& key, Leave leave, const Result<std::string>& answer,
                         const Done& done) {
    auto user = answer ? program_words::user_answer(*answer) : answer;
    if (!user) {
        if (answer) users_.note_nonsense(user.error());
        return keep(key, tl::unexpected(is_silent("user map")), done);
    }
    leave.account = std::move(*user);
    keep(key, std::move(leave), done);
}

void ArrivalDesk::keep(const std::string& key, Result<Leave> leave, const Done& done) {
    const auto known = known_.find(key);
    if (known == known_.end()) {
        order_.push_back(key);
        if (order_.size() > kept_most) {
            known_.erase(order_.front());
            order_.pop_front();
        }
    }
    const bool refused = !leave && leave.error().cause == CauseCode::not_allowed;
    const Nanos until = Loop::now() + (leave || refused ? kept : failure_kept);
    known_.insert_or_assign(key, Known{leave, until});
    done(leave);
}

}  // namespace souk
