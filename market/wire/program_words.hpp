// SPDX-License-Identifier: GPL-2.0-or-later
// Questions of marketd to the operator's programs, and what it takes for an answer
// (docs/filters.md), each one JSON object. An answer with a key too many, of a wrong type or with a
// value that cannot be is no answer, and the error says why in one line. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "market/core/market_state.hpp"
#include "market/core/offer_rounds.hpp"

namespace souk::program_words {

// A job of a peer, as its market has told of it.
struct Guest {
    std::string site;
    JobId id;  // as it is called there
    std::string user;
    JobTerms terms;  // told_to_sites()
    std::string token;
};

struct Arrival {
    std::string no;  // it does not come, and why; empty: it may
    Money least;     // per CPU-hour
    bool operator==(const Arrival&) const = default;
};

std::string ask_submit(const market::Job& job);
std::string ask_arrival(const Guest& guest);
std::string ask_user(const Guest& guest);
// `round`: its offers, of which those that `which` names are told.
std::string ask_metric(const market::Job& job, const OfferRounds::Round& round,
                       std::span<const size_t> which);
std::string ask_reroute(const market::Job& job, const OfferRounds::Round& round,
                        std::span<const size_t> which);

Result<market::FilterWord> submit_answer(const std::string& text);
Result<Arrival> arrival_answer(const std::string& text);
// Empty: it names nobody.
Result<std::string> user_answer(const std::string& text);
// Which of the sites that it was told of; "own" stands for the job's own, which is empty here.
struct Choice {
    std::optional<size_t> at;  // nullopt: none
    std::string why;           // none, and why
};
// The metric: the site with the least number; of several the first.
Result<Choice> least_of(const std::string& text, const std::vector<std::string>& sites);
// The program that reroutes: one of them, or the job stays.
Result<Choice> rerouted(const std::string& text, const std::vector<std::string>& sites);

}  // namespace souk::program_words
