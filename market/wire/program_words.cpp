// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/wire/program_words.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernel/base/json.hpp"
#include "kernel/base/text.hpp"
#include "market/core/needs.hpp"
#include "market/core/site_moves.hpp"

namespace souk::program_words {
namespace {

using Json = nlohmann::json;
constexpr size_t user_bytes_max = 64;

void write_terms(JsonWriter& w, const JobTerms& t) {
    w.field("project", *t.project).field("max_price", t.max_price).field("cpus", t.cpus);
    w.field("memory_mb", t.memory_mb).field("runtime_s", t.runtime.seconds());
    w.field("needs", *t.needs).field("resources", *t.resources);
}

// Writes what its user may see of it.
void write_own(JsonWriter& w, const market::Job& job) {
    const JobReport& r = job.record.report;
    const JobTerms& t = r.terms;
    w.field("job", r.id.text()).field("user", r.user).field("uid", r.uid);
    w.field("name", r.name).field("command", r.command);
    write_terms(w, t);
    w.field("budget", t.budget).field("time_limit_s", t.limits->run.seconds());
    w.field("sites", t.sites->names).field("prefer", preference(*t.sites));
    w.field("array", *r.array).field("gang", r.gang);
    w.field("token", job.record.filter->token);
}

void write_gain(JsonWriter& w, const SiteGain& gain) {
    w.field("unit", gain.is_money ? "money" : "seconds");
    if (gain.is_money)
        w.field("gain", gain.money).field("cost", gain.money_cost);
    else
        w.field("gain", gain.time.seconds()).field("cost", gain.time_cost.seconds());
    w.field("twice", gain.is_doubled).field("pays", gain.pays);
}

std::string name_of(const std::string& site) { return site.empty() ? "own" : site; }

void write_offers(JsonWriter& w, const OfferRounds::Round& round, std::span<const size_t> which) {
    w.key("offers").begin_array();
    for (const size_t i : which) {
        const auto& [site, offer] = round.answers[i];
        w.begin_object().field("site", name_of(site)).field("price", offer->price);
        w.field("speed", offer->speed).field("starts_in_s", offer->starts_in.seconds());
        w.field("held_s", offer->held_for.seconds());
        if (round.wish.move) write_gain(w, gain_of(*round.wish.move, stay_of(*offer), site));
        w.end_object();
    }
    w.end_array();
}

std::string shortened(const std::string& text, size_t most) {
    return blank_controls(std::string_view(text).substr(0, most));
}

// The one object that the text is, whose keys are among these.
Result<Json> object_of(const std::string& text, std::initializer_list<std::string_view> keys) {
    Json answer = Json::parse(text, nullptr, false);
    if (answer.is_discarded()) return fail("its answer is no JSON");
    if (!answer.is_object()) return fail("its answer is no JSON object");
    for (const auto& [key, value] : answer.items())
        if (std::ranges::find(keys, key) == keys.end())
            return fail("its answer has the key '" + shortened(key, 40) + "', which means nothing");
    return answer;
}

Error wrong(const char* key, const char* what) {
    return Error{0, std::string("its answer needs ") + what + " as '" + key + "'"};
}

Result<bool> flag_of(const Json& from, const char* key) {
    const auto at = from.find(key);
    if (at == from.end()) return false;
    if (!at->is_boolean()) return tl::unexpected(wrong(key, "true or false"));
    return at->get<bool>();
}

Result<std::string> text_of(const Json& from, const char* key) {
    const auto at = from.find(key);
    if (at == from.end() || at->is_null()) return std::string();
    if (!at->is_string()) return tl::unexpected(wrong(key, "a text"));
    return at->get<std::string>();
}

// Returns why it refuses; empty: it accepts.
Result<std::string> refusal_of(const Json& from, size_t most) {
    if (!from.contains("accept")) return tl::unexpected(wrong("accept", "true or false"));
    TRY_ASSIGN(const bool accepts, flag_of(from, "accept"));
    TRY_ASSIGN(const std::string reason, text_of(from, "reason"));
    if (accepts) return std::string();
    const std::string shown = shortened(reason, most);
    return shown.empty() ? "it says no more" : shown;
}

// Names of sites with commas between, or "any".
Result<std::string> bars_of(const Json& from) {
    const auto at = from.find("bar");
    if (at == from.end() || at->is_null()) return std::string();
    std::string bars;
    if (at->is_string()) {
        bars = at->get<std::string>();
    } else if (at->is_array()) {
        for (const Json& site : *at) {
            if (!site.is_string()) return tl::unexpected(wrong("bar", "names of sites"));
            bars += (bars.empty() ? "" : ",") + site.get<std::string>();
        }
    } else {
        return tl::unexpected(wrong("bar", "names of sites"));
    }
    if (const Status good = check_site_wish(bars); !good)
        return fail("its answer bars " + good.error().message);
    return bars;
}

}  // namespace

std::string ask_submit(const market::Job& job) {
    JsonWriter w;
    w.begin_object().field("ask", "submit");
    write_own(w, job);
    w.end_object();
    return w.take() + "\n";
}

std::string ask_arrival(const Guest& guest) {
    JsonWriter w;
    w.begin_object().field("ask", "arrival").field("site", guest.site);
    w.field("job", guest.site + ":" + guest.id.text()).field("user", guest.user);
    write_terms(w, guest.terms);
    w.field("token", guest.token).end_object();
    return w.take() + "\n";
}

std::string ask_user(const Guest& guest) {
    JsonWriter w;
    w.begin_object().field("ask", "user").field("site", guest.site).field("user", guest.user);
    w.field("project", *guest.terms.project).field("token", guest.token).end_object();
    return w.take() + "\n";
}

std::string ask_metric(const market::Job& job, const OfferRounds::Round& round,
                       std::span<const size_t> which) {
    JsonWriter w;
    w.begin_object().field("ask", "metric");
    write_own(w, job);
    write_offers(w, round, which);
    w.end_object();
    return w.take() + "\n";
}

std::string ask_reroute(const market::Job& job, const OfferRounds::Round& round,
                        std::span<const size_t> which) {
    JsonWriter w;
    w.begin_object().field("ask", "reroute");
    write_own(w, job);
    const SiteMove& move = *round.wish.move;
    w.key("here").begin_object().field("site", name_of(job.record.loan->site));
    w.field("price", move.here.price).field("speed", move.here.speed);
    w.field("rest_s", std::min(move.rest, gain_horizon).seconds()).end_object();
    w.key("left_lately").begin_array();
    for (const std::string& site : move.lately) w.value(name_of(site));
    w.end_array();
    write_offers(w, round, which);
    w.end_object();
    return w.take() + "\n";
}

Result<market::FilterWord> submit_answer(const std::string& text) {
    using Word = market::FilterWord;
    TRY_ASSIGN(const Json a,
               object_of(text, {"accept", "reason", "token", "bar", "needs", "hold"}));
    Word word;
    TRY_ASSIGN(word.why, refusal_of(a, Word::why_bytes_max));
    word.state = word.why.empty() ? Word::State::passed : Word::State::refused;
    TRY_ASSIGN(word.token, text_of(a, "token"));
    TRY_ASSIGN(word.bars, bars_of(a));
    TRY_ASSIGN(word.needs, text_of(a, "needs"));
    TRY_ASSIGN(word.hold, flag_of(a, "hold"));
    if (!word.token.empty())
        if (const Status good = check_label(word.token, Word::token_bytes_max); !good)
            return fail("its token: " + good.error().message);
    if (!word.needs.empty())
        if (const auto good = market::Needs::parse(word.needs); !good)
            return fail("its needs: " + shortened(good.error().message, Word::why_bytes_max));
    if (word.state == Word::State::refused) word = Word{word.state, word.why};
    return word;
}

Result<Arrival> arrival_answer(const std::string& text) {
    TRY_ASSIGN(const Json a, object_of(text, {"accept", "reason", "least"}));
    Arrival word;
    TRY_ASSIGN(word.no, refusal_of(a, market::FilterWord::why_bytes_max));
    const auto least = a.find("least");
    if (least == a.end() || least->is_null()) return word;
    if (!least->is_number() && !least->is_string())
        return tl::unexpected(wrong("least", "a price"));
    const auto price = parse_money(least->is_string() ? least->get<std::string>() : least->dump());
    if (!price || *price < Money{} || *price > money_max)
        return tl::unexpected(wrong("least", "a price"));
    word.least = *price;
    return word;
}

Result<std::string> user_answer(const std::string& text) {
    TRY_ASSIGN(const Json a, object_of(text, {"user"}));
    if (!a.contains("user")) return tl::unexpected(wrong("user", "a name or null"));
    TRY_ASSIGN(std::string user, text_of(a, "user"));
    const auto may_be = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '.' || c == '-';
    };
    if (user.empty() && !a["user"].is_null())
        return tl::unexpected(wrong("user", "a name or null"));
    if (user.size() > user_bytes_max || user.starts_with('-') || !std::ranges::all_of(user, may_be))
        return tl::unexpected(wrong("user", "the name of an account"));
    if (user == "root") return fail("its answer is root, whom no job of another site becomes");
    return user;
}

Result<Choice> least_of(const std::string& text, const std::vector<std::string>& sites) {
    TRY_ASSIGN(const Json a, object_of(text, {"metric"}));
    const auto metric = a.find("metric");
    if (metric == a.end() || !metric->is_object())
        return tl::unexpected(wrong("metric", "an object of numbers by site"));
    Choice choice{std::nullopt, "site_metric gives none of them a number"};
    double least = 0;
    for (const auto& [site, number] : metric->items()) {
        const auto named = [&site = site](const std::string& one) { return name_of(one) == site; };
        const auto at = std::ranges::find_if(sites, named);
        if (at == sites.end())
            return fail("its answer names the site '" + shortened(site, 64) +
                        "', of which it was not told");
        if (number.is_null()) continue;
        const double value = number.is_number() ? number.get<double>() : NAN;
        if (!std::isfinite(value)) return tl::unexpected(wrong("metric", "a number for each site"));
        const auto i = static_cast<size_t>(at - sites.begin());
        if (choice.at && (value > least || (value == least && *choice.at < i))) continue;
        choice.at = i;
        least = value;
    }
    return choice;
}

Result<Choice> rerouted(const std::string& text, const std::vector<std::string>& sites) {
    TRY_ASSIGN(const Json a, object_of(text, {"move", "reason"}));
    if (!a.contains("move")) return tl::unexpected(wrong("move", "a site or null"));
    TRY_ASSIGN(const std::string site, text_of(a, "move"));
    TRY_ASSIGN(const std::string reason, text_of(a, "reason"));
    if (a["move"].is_null()) {
        std::string why = "site_reroute says stay";
        if (!reason.empty()) why += ": " + shortened(reason, market::FilterWord::why_bytes_max);
        return Choice{std::nullopt, why};
    }
    const auto named = [&](const std::string& one) { return name_of(one) == site; };
    const auto at = std::ranges::find_if(sites, named);
    if (at == sites.end())
        return fail("its answer names the site '" + shortened(site, 64) +
                    "', of which it was not told");
    return Choice{static_cast<size_t>(at - sites.begin()), {}};
}

}  // namespace souk::program_words
