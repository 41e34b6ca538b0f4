// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/cancel.hpp"

#include <memory>

#include "kernel/base/array_spec.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/number.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

// One job says nothing more.
Result<std::string> cancelled_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    if (!s.contains("count")) return std::string();
    const uint64_t count = s.value("count", uint64_t{0});
    return std::to_string(count) + (count == 1 ? " job is" : " jobs are") + " being cancelled";
}

Result<std::string> held_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    if (!s.contains("count")) return std::string();
    const uint64_t count = s.value("count", uint64_t{0});
    return std::to_string(count) + (count == 1 ? " job" : " jobs") +
           (s.contains("others") ? "; of the others: " + field(s, "others") : "");
}

// One word of a list: a job (and, if it is the first of an array, all of that), jobs of one home
// whose numbers follow each other, or elements of an array.
struct Word {
    std::string site;  // "lab:" where one was said: its market tells whether that is itself
    JobId first;
    uint64_t last = 0;  // ID-NUMBER; else the number of `first`
    std::string only;   // ID[LIST]: the list, of elements of its array
    std::string id() const { return site + first.text(); }
};

constexpr uint64_t jobs_max = 10'000;
constexpr size_t words_max = 16;  // of one request

Result<Word> word_of(std::string_view text) {
    Word word;
    const size_t bracket = text.find('[');
    auto [site, id] = of_site(text.substr(0, bracket));
    if (!site.empty()) word.site = std::string(site) + ":";
    const bool all = bracket != text.npos && text.substr(bracket) == "[*]";
    if (bracket != text.npos && !all) {
        if (!text.ends_with(']')) return fail("'" + std::string(text) + "' is no job");
        const auto list = text.substr(bracket + 1, text.size() - bracket - 2);
        TRY_ASSIGN(const ArraySpec spec, parse_array(list));
        if (spec.at_once > 0) return fail("'" + std::string(list) + "' is no list of indexes");
        word.only = list;
    }
    const size_t dash = id.rfind('-');
    const auto last = bracket == text.npos && dash != id.npos && dash > id.find('.')
                          ? whole_number<uint64_t>(id.substr(dash + 1))
                          : std::nullopt;
    if (last) id = id.substr(0, dash);
    TRY_ASSIGN(word.first, parse_job_id(id));
    word.last = last.value_or(word.first.seq);
    if (word.last < word.first.seq || word.last - word.first.seq >= jobs_max)
        return fail("'" + std::string(text) + "' is no range of at most " +
                    std::to_string(jobs_max) + " jobs");
    return word;
}

// Holds the words that are still to be asked about, and what is known of the others.
struct Gathering {
    std::string verb;
    std::vector<Word> words;
    size_t at = 0;
    std::vector<std::string> found;
};

// The next question: about a job that may be the first of an array, or the order itself.
CtlQuestion next_question(std::shared_ptr<Gathering> g) {
    const auto text = g->verb == "cancel" ? cancelled_text : held_text;
    for (; g->at < g->words.size(); ++g->at) {
        const Word& word = g->words[g->at];
        const std::string id = word.id();
        if (!word.only.empty())
            g->found.push_back("array=" + id + "[" + word.only + "]");
        else if (word.last != word.first.seq)
            g->found.push_back("range=" + id + "-" + std::to_string(word.last));
        else
            break;
    }
    if (g->at == g->words.size()) return {g->verb, g->found, text};
    CtlQuestion question{"job", {g->words[g->at].id()}, text};
    question.then = [g](const Answer& answer) -> Result<CtlQuestion> {
        const Word& word = g->words[g->at++];
        TRY_ASSIGN(const Json job, parse_object(answer));
        const bool whole = job.value("array", "") == word.first.text();
        g->found.push_back((whole ? "array=" : "") + word.id());
        return next_question(g);
    };
    return question;
}

}  // namespace

Result<CtlQuestion> jobs_question(const std::string& verb, std::span<char*> words) {
    if (words.empty()) return fail(verb + ": a job's id is missing");
    auto gathering = std::make_shared<Gathering>();
    gathering->verb = verb;
    for (const std::string_view text : words)
        for (std::string_view rest = text; !rest.empty();) {
            // a comma between brackets is of the list
            const size_t bracket = rest.find('[');
            size_t end = rest.find(',');
            if (bracket < end) end = rest.find(',', std::min(rest.find(']'), rest.size()));
            TRY_ASSIGN(Word word, word_of(rest.substr(0, end)));
            gathering->words.push_back(std::move(word));
            rest.remove_prefix(std::min(end, rest.size()));
            if (!rest.empty()) rest.remove_prefix(1);
        }
    if (gathering->words.size() > words_max)
        return fail(verb + ": more than " + std::to_string(words_max) +
                    " jobs or lists of them; ID-NUMBER and ID[LIST] name many");
    return next_question(gathering);
}

Result<CtlQuestion> cancel_question(std::span<char*> words, const CancelOptions& o,
                                    const std::string& user) {
    const bool several = !(o.name + o.array).empty() || o.all || !user.empty();
    if (several && !words.empty())
        return fail("cancel: a job's id, or --name, --user, --array and --all");
    if (!several) {
        return jobs_question("cancel", words);
    }
    CtlQuestion question{"cancel", {}, cancelled_text};
    if (!o.name.empty()) question.args.push_back("name=" + o.name);
    if (!user.empty()) question.args.push_back("user=" + user);
    if (!o.array.empty()) {
        TRY_ASSIGN(const JobId array, parse_job_id(o.array));
        question.args.push_back("array=" + array.text());
    }
    if (o.all) question.args.emplace_back("all");
    return question;
}

}  // namespace souk::tools
