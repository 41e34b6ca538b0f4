// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/everywhere.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/text.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tools/common/table.hpp"
#include "tools/common/typed_options.hpp"

namespace souk::tools {
namespace {

// The market gives a silent peer 5 s; a site may need several parts.
constexpr Nanos part_limit = Nanos::from_s(10), site_limit = Nanos::from_s(20);
constexpr size_t at_once = 16, depth_max = 32, answer_bytes_max = 16 << 20;

constexpr std::string_view everywhere_verbs[] = {
    "status", "list-jobs", "list-providers", "reservations", "plan", "job", "why"};

// The answers to these are lists, which are shown as one.
bool is_list(std::string_view verb) { return verb != "status" && verb != "job" && verb != "why"; }

struct Site {
    std::string name;
    bool own = false;
    std::optional<Json> answer{};
    std::string shown{};  // the answer as people read it
    Error error{};
    std::optional<Json> heard{};  // it has not answered, and this is said of it
    bool is_asked = true;         // else it is no peer, and only heard of
    // It said something, though perhaps that it will not.
    bool silent() const {
        return !answer && (error.cause == CauseCode::away || error.cause == CauseCode::none);
    }
};

// Puts the site before the job or the node that one of these keys names, and blanks what would
// control a terminal.
void name_fully(Json& value, const std::string& site, size_t depth = 0) {
    constexpr std::string_view keys[] = {"id",   "array", "gang", "group", "first",
                                         "node", "where", "home", "job",   "going_to"};
    if (depth > depth_max) return;
    if (value.is_array())
        for (Json& one : value) name_fully(one, site, depth + 1);
    // A line break within a text would begin a row that looks like one of ours.
    if (value.is_string()) value = blank_controls(value.get_ref<const std::string&>());
    if (!value.is_object()) return;
    for (auto& [key, one] : value.items()) {
        name_fully(one, site, depth + 1);
        if (!one.is_string() || std::ranges::find(keys, key) == std::end(keys)) continue;
        // Whatever it says there, it cannot pass for a job or a node of ours.
        const auto text = one.get<std::string>();
        if (!text.empty() && text != "none") one = site + ":" + text;
    }
}

// All parts of one site's answer.
Result<std::string> whole_answer(const Site& site, const CtlQuestion& question,
                                 const AskPart& ask) {
    const Nanos until = monotonic_now() + site_limit;
    std::vector<std::string> args = question.args;
    if (!site.own) args.insert(args.begin(), {site.name, question.verb});
    Answer parts;
    size_t bytes = 0;
    for (std::string after;;) {
        const Nanos left = until - monotonic_now();
        if (left.ns <= 0) return fail(CauseCode::away, "its answer was not whole within 20 s");
        auto part = ask(site.own ? question.verb : "at", args, after, std::min(left, part_limit));
        if (!part && part.error().code == ETIMEDOUT)
            return fail(CauseCode::away, "it did not answer in time");
        if (!part) return tl::unexpected(std::move(part).error());
        bytes += part->json.size();
        if (bytes > answer_bytes_max) return fail(CauseCode::invalid, "its answer is too long");
        parts.push_back(std::move(part->json));
        if (part->next.empty()) return joined(std::move(parts));
        after = std::move(part->next);
    }
}

// Runs on a thread: what is wrong with an answer is that site's error.
void ask_site(Site& site, const CtlQuestion& question, const AskPart& ask) try {
    auto text = whole_answer(site, question, ask);
    if (!text) {
        site.error = std::move(text).error();
        return;
    }
    auto answer = read_claim(*text);
    if (!answer) {
        site.error = std::move(answer).error();
        return;
    }
    if (answer->is_array() != is_list(question.verb)) {
        site.error = {0, "its answer is none to this question", CauseCode::invalid};
        return;
    }
    if (!site.own) name_fully(*answer, site.name);
    site.answer = std::move(*answer);
} catch (const std::exception& e) {
    site.error = {0, "its answer cannot be read: " + std::string(e.what()), CauseCode::invalid};
}

void ask_all(std::vector<Site>& sites, const CtlQuestion& question, const AskPart& ask) {
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < std::min(sites.size(), at_once); ++i)
        threads.emplace_back([&] {
            for (size_t at = next++; at < sites.size(); at = next++)
                ask_site(sites[at], question, ask);
        });
    for (std::thread& thread : threads) thread.join();
}

// The own site first, then the peers by name: all, or those that are named.
Result<std::vector<Site>> sites_of(const std::string& named, const AskPart& ask, Nanos patience) {
    TRY_ASSIGN(const Answer list, ask_again(
                                      [&]() -> Result<Answer> {
                                          TRY_ASSIGN(auto part,
                                                     ask("peer-list", {}, "", part_limit));
                                          return Answer{std::move(part.json)};
                                      },
                                      "status", patience));
    TRY_ASSIGN(const Json known, parse_object(list));
    std::vector<Site> all = {{known.value("site", ""), true}};
    for (const Json& peer : known.value("peers", Json::array()))
        all.push_back({peer.value("site", "")});
    if (named == "all") return all;
    std::vector<Site> chosen;
    for (const std::string& name : comma_parts(named)) {
        const auto it =
            std::ranges::find_if(all, [&](const Site& site) { return site.name == name; });
        if (it == all.end())
            return fail(CauseCode::not_found, "there is no peer " + name + " (souk peer list)");
        if (std::ranges::none_of(chosen, [&](const Site& site) { return site.name == name; }))
            chosen.push_back(*it);
    }
    return chosen;
}

// The machines of a site as others have it, named as in list-providers.
Json heard_nodes(const Json& word, const std::string& site) {
    Json nodes = word.value("some", Json::array());
    if (!nodes.is_array()) return Json::array();
    for (Json& node : nodes)
        if (node.is_object()) node["status"] = "heard of";
    name_fully(nodes, site);
    return nodes;
}

// Sites that do not answer, or are no peers, are shown as the own market has heard of them. One of
// a version before has heard of none.
void add_news(std::vector<Site>& sites, const AskPart& ask) {
    CtlQuestion question{"site-news", {}, nullptr};
    const auto text = whole_answer(Site{"", true}, question, ask);
    if (!text) return;
    const Json news = parse_json(*text);
    if (!news.is_array()) return;
    for (const Json& word : news) {
        const std::string name = word.is_object() ? word.value("site", "") : "";
        if (!valid_site_name(name)) continue;
        auto it = std::ranges::find(sites, name, &Site::name);
        if (it != sites.end() && it->answer) continue;
        if (it == sites.end()) {
            it = sites.insert(sites.end(), Site{name});
            it->is_asked = false;
        }
        it->heard = Json{{"age_s", word.value("age_s", 0.0)},
                         {"from", word.value("from", "")},
                         {"nodes", heard_nodes(word, name)}};
    }
}

std::string heard_text(const Site& site) {
    const std::string from = field(*site.heard, "from");
    return site.name + ": as " + (from == site.name ? "it" : from) + " said " +
           duration(*site.heard, "age_s") + " ago";
}

std::string json_text(const std::vector<Site>& sites) {
    Json all = Json::array();
    for (const Site& site : sites) {
        Json one = {{"site", site.name}, {"own", site.own}};
        if (site.heard) one["heard"] = *site.heard;
        if (site.answer) {
            one["answer"] = *site.answer;
        } else if (site.is_asked) {
            one["error"] = site.error.message;
            one["code"] = std::string(to_string(site.error.cause));
        }
        all.push_back(std::move(one));
    }
    return Json{{"sites", std::move(all)}}.dump();
}

// An answer that cannot be shown is none, and hides no other site's.
void see_shown(Site& site, const CtlQuestion& question) {
    if (!site.answer) return;
    try {
        auto shown = question.text({site.answer->dump()});
        if (shown) {
            site.shown = std::move(*shown);
            return;
        }
        site.error = shown.error();
    } catch (const std::exception&) {
        site.error = Error{0, "its answer cannot be read"};
    }
    site.answer.reset();
}

// Several lists as one; other answers one below the other, each with its site's name above it.
Result<std::string> text_of_sites(const std::vector<Site>& sites, const CtlQuestion& question) {
    if (is_list(question.verb)) {
        Json all = Json::array();
        for (const Site& site : sites) {
            const Json* const rows = site.answer  ? &*site.answer
                                     : site.heard ? &site.heard->at("nodes")
                                                  : nullptr;
            if (!rows) continue;
            for (const Json& row : *rows) all.push_back(row);
        }
        TRY_ASSIGN(std::string text, question.text({all.dump()}));
        for (const Site& site : sites)
            if (site.heard) text += "\n" + heard_text(site);
        return text;
    }
    std::string text;
    for (const Site& site : sites) {
        text += (text.empty() ? "" : "\n\n") + ("site " + site.name) + "\n";
        text += site.answer ? site.shown : "no answer: " + site.error.message;
    }
    return text;
}

// Success means that each site has answered; of one job, that one has it and none was silent.
Status verdict_of(const std::vector<Site>& sites, const CtlQuestion& question) {
    const size_t answered = static_cast<size_t>(
        std::ranges::count_if(sites, [](const Site& site) { return site.answer.has_value(); }));
    const size_t asked = static_cast<size_t>(std::ranges::count_if(sites, &Site::is_asked));
    std::string missing;
    CauseCode code = CauseCode::none;
    for (const Site& site : sites) {
        if (site.answer || !site.is_asked ||
            (!is_list(question.verb) && answered > 0 && !site.silent()))
            continue;
        missing += (missing.empty() ? "" : "; ") + site.name + ": " + site.error.message;
        if (code == CauseCode::none || site.silent()) code = site.error.cause;
    }
    if (missing.empty()) return {};
    return fail(code, std::to_string(answered) + " of " + std::to_string(asked) +
                          " sites answered; " + missing);
}

}  // namespace

// Too deep a nesting would end this program, as what copies and prints values calls itself for each
// level.
Result<Json> read_claim(const std::string& text) {
    size_t depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < text.size(); ++i) {
        if (quoted && text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (text[i] == '[' || text[i] == '{') && ++depth > depth_max)
            return fail(CauseCode::invalid, "its answer is nested too deep");
        else if (!quoted && (text[i] == ']' || text[i] == '}') && depth > 0)
            --depth;
    }
    Json value = parse_json(text);
    if (value.is_discarded()) return fail(CauseCode::invalid, "its answer is no JSON");
    return value;
}

Status ask_everywhere(const std::string& sites, CtlQuestion& question) {
    if (std::ranges::find(everywhere_verbs, question.verb) == std::end(everywhere_verbs) ||
        question.then || question.here)
        return fail((question.verb.empty() ? "this" : question.verb) +
                    ": -X is for status, list-jobs, list-providers, reservations, plan, job and "
                    "why");
    CtlQuestion plain = question;
    question.asks = [plain = std::move(plain), named = sites](const AskPart& ask, Nanos patience,
                                                              bool json) -> Result<CtlShown> {
        TRY_ASSIGN(std::vector<Site> all, sites_of(named, ask, patience));
        ask_all(all, plain, ask);
        // A word of another site's says too little of a machine to choose it by.
        if (named == "all" && plain.verb == "list-providers" && plain.args.empty())
            add_news(all, ask);
        CtlShown shown;
        if (json) {
            shown.text = json_text(all);
        } else {
            for (Site& site : all) see_shown(site, plain);
            TRY_ASSIGN(shown.text, text_of_sites(all, plain));
        }
        shown.verdict = verdict_of(all, plain);
        return shown;
    };
    return {};
}

void show_of_site(const std::string& site, CtlQuestion& question) {
    CtlQuestion plain = question;
    question.asks = [plain = std::move(plain), site](const AskPart& ask, Nanos patience,
                                                     bool json) -> Result<CtlShown> {
        TRY_ASSIGN(const Answer answer,
                   ask_again(
                       [&]() -> Result<Answer> {
                           TRY_ASSIGN(auto part, ask(plain.verb, plain.args, "", part_limit));
                           return Answer{std::move(part.json)};
                       },
                       plain.verb, patience));
        TRY_ASSIGN(Json named, read_claim(answer.front()));
        if (!named.is_object()) return fail(CauseCode::invalid, "the answer is no JSON object");
        name_fully(named, site);
        CtlShown shown{named.dump(), {}};
        if (!json) {
            TRY_ASSIGN(shown.text, plain.text({shown.text}));
        }
        return shown;
    };
}

}  // namespace souk::tools
