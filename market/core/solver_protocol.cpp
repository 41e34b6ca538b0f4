// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/solver_protocol.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <vector>

#include "kernel/base/number.hpp"
#include "market/core/solver.hpp"

namespace souk::market {

namespace {

constexpr int64_t seconds_max = INT64_MAX / 1'000'000'000 / 4;

// At most this many words are of interest; one more tells that there are too many.
constexpr size_t words_max = 6 + 64;

std::vector<std::string_view> split(std::string_view line) {
    constexpr std::string_view blanks = " \t\r";
    std::vector<std::string_view> words;
    for (size_t at = line.find_first_not_of(blanks);
         at != line.npos && words.size() <= words_max;) {
        const size_t end = std::min(line.find_first_of(blanks, at), line.size());
        words.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(blanks, end);
    }
    return words;
}

// The part that is shown of a word that cannot be taken.
std::string shown(std::string_view word) {
    std::string text;
    for (const char c : word.substr(0, 40)) text += c >= ' ' && c <= '~' ? c : '?';
    return "'" + text + (word.size() > 40 ? "...'" : "'");
}

// Takes the words of one line one after the other; the first that is wrong is the error.
class Words {
  public:
    Words(std::string_view line, std::vector<std::string_view> words)
        : words_(std::move(words)), line_(line) {}

    size_t left() const { return words_.size() - next_; }
    template <class Int>
    Int integer(const char* what, int64_t least, uint64_t most) {
        const std::string_view w = words_[next_++];
        Int value{};
        const auto [end, code] = std::from_chars(w.data(), w.data() + w.size(), value);
        const bool in_range =
            code == std::errc{} && end == w.data() + w.size() &&
            (std::is_signed_v<Int> ? static_cast<int64_t>(value) >= least : true) &&
            (value < Int{} || static_cast<uint64_t>(value) <= most) &&
            (least <= 0 ||
             (value > Int{} && static_cast<uint64_t>(value) >= static_cast<uint64_t>(least)));
        if (!in_range)
            note(std::string(what) + " " + shown(w) + " is not a whole number from " +
                 std::to_string(least) + " to " + std::to_string(most));
        return in_range ? value : Int{};
    }
    Money money(const char* what) {
        const std::string_view w = words_[next_++];
        const auto m = parse_money(w);
        if (!m) note(std::string(what) + " " + shown(w) + ": " + m.error().message);
        return m ? *m : Money{};
    }
    JobKey job() { return {integer<uint64_t>("job id", 1, UINT64_MAX)}; }
    ProviderKey provider() { return {integer<uint64_t>("provider id", 1, UINT64_MAX)}; }
    int64_t memory() { return integer<int64_t>("memory", 0, memory_mb_max); }
    int32_t cpus() { return integer<int32_t>("cpus", 1, cpus_max); }
    int64_t seconds(const char* what, int64_t least) {
        return integer<int64_t>(what, least, seconds_max);
    }
    std::string word() { return std::string(words_[next_++]); }
    // Takes the next word if it is this one, or with `rest` if it begins so.
    bool take(std::string_view text, std::string_view* rest = nullptr) {
        if (left() == 0 || !words_[next_].starts_with(text)) return false;
        if (!rest && words_[next_] != text) return false;
        if (rest) *rest = words_[next_].substr(text.size());
        ++next_;
        return true;
    }
    void note(std::string error) {
        if (error_.empty()) error_ = std::move(error);
    }
    const std::string& error() const { return error_; }

  private:
    std::vector<std::string_view> words_;
    std::string_view line_;
    size_t next_ = 1;
    std::string error_;
};

using namespace command;

struct Form {
    std::string_view name;
    size_t least, most;  // words after the name
    std::string_view usage;
    Command (*take)(Words&);
};

Command take_set(Words& w) {
    Set s{w.word(), w.word()};
    if (const Status known = Solver::can_set(s.what); !known) w.note(known.error().message);
    return s;
}

Command take_add_job(Words& w) {
    AddJob a;
    a.id = w.job();
    a.value = w.money("value");
    a.memory_mb = w.memory();
    a.cpus = w.cpus();
    a.start_s = w.seconds("start", 0);
    a.run_s = w.seconds("run", -1);
    a.user =
        w.left() > 0 ? w.integer<uint32_t>("uid", 0, UINT32_MAX) : static_cast<uint32_t>(a.id.n);
    return a;
}

// [COUNTx]CPUS:MEMORY[@PROVIDER][:optional]
void take_part(Words& w, AddGang& gang) {
    const std::string word = w.word();
    std::string_view rest = word;
    AddGang::Part part;
    const auto number = [&](auto& value) {
        const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        if (code != std::errc{}) return false;
        rest.remove_prefix(static_cast<size_t>(end - rest.data()));
        return true;
    };
    const auto skip = [&](std::string_view text) {
        if (!rest.starts_with(text)) return false;
        rest.remove_prefix(text.size());
        return true;
    };
    bool good = number(part.cpus);
    if (good && skip("x")) {
        part.count = part.cpus;
        good = number(part.cpus);
    }
    good = good && skip(":") && number(part.memory_mb);
    if (good && skip("@")) good = number(part.only.n) && part.only.n > 0;
    part.optional = good && skip(":optional");
    const auto most = static_cast<int32_t>(Solver::gang_components_max);
    if (!good || !rest.empty() || part.count < 1 || part.count > most || part.cpus < 1 ||
        part.cpus > cpus_max || part.memory_mb < 0 || part.memory_mb > memory_mb_max)
        w.note("part " + shown(word) +
               " is not [COUNTx]CPUS:MEMORY[@PROVIDER][:optional], with at most " +
               std::to_string(most) + " components");
    else if (part.optional && gang.parts.empty())
        w.note("part " + shown(word) + ": the first component cannot be optional");
    else if (!part.optional && !gang.parts.empty() && gang.parts.back().optional)
        w.note("part " + shown(word) + ": the optional ones come last");
    gang.parts.push_back(part);
}

// US or US:MBIT; 0: any of it.
std::optional<std::pair<int64_t, int64_t>> near_figures(std::string_view text) {
    const size_t colon = std::min(text.find(':'), text.size());
    const auto trip = whole_number<int64_t>(text.substr(0, colon));
    const auto mbit = colon < text.size() ? whole_number<int64_t>(text.substr(colon + 1)) : 0;
    if (!trip || !mbit || *trip < 0 || *mbit < 0 || *trip > near_most || *mbit > near_most)
        return std::nullopt;
    return std::pair(*trip, *mbit);
}

Command take_add_gang(Words& w) {
    AddGang a;
    a.id = w.job();
    a.value = w.money("value");
    a.start_s = w.seconds("start", 0);
    a.run_s = w.seconds("run", -1);
    a.user = w.integer<uint32_t>("uid", 0, UINT32_MAX);
    if (w.take("pack")) a.layout.few = true;
    if (std::string_view most; w.take("spread=", &most)) {
        const auto number = whole_number<uint32_t>(most);
        a.layout.most_on_one = number.value_or(0);
        if (a.layout.most_on_one == 0) w.note("spread=N: " + shown(most) + " is no number above 0");
    }
    std::string_view bounds = "0";
    a.layout.near = w.take("near") || w.take("near=", &bounds);
    if (const auto figures = near_figures(bounds))
        std::tie(a.layout.trip_us_most, a.layout.mbit_least) = *figures;
    else
        w.note("near=" + std::string(bounds) + " is not near=US[:MBIT]");
    while (w.left() > 0) take_part(w, a);
    if (a.parts.empty()) w.note("no component: PART is missing");
    return a;
}

Command take_add_provider(Words& w) {
    AddProvider a;
    a.id = w.provider();
    a.reserve = w.money("reserve");
    a.memory_mb = w.memory();
    a.cpus = w.cpus();
    a.start_s = w.seconds("start", 0);
    std::string_view near;
    bool said = w.take("near=", &near);
    if (!said && w.left() > 0) {
        a.speed = w.integer<int32_t>("speed", 1, speed_max);
        said = w.take("near=", &near);
    }
    if (!said) return a;
    const size_t colon = std::min(near.find(':'), near.size());
    const auto network = whole_number<uint64_t>(near.substr(0, colon));
    const auto figures = near_figures(colon < near.size() ? near.substr(colon + 1) : "0");
    if (!network || *network == 0 || *network > ProviderSpec::network_max || !figures) {
        w.note("near=" + std::string(near) + " is not near=NETWORK[:US:MBIT]");
        return a;
    }
    a.network = *network;
    std::tie(a.trip_us, a.mbit) = *figures;
    return a;
}

constexpr std::array<Form, 21> forms{{
    {"info", 0, 0, "info", [](Words&) -> Command { return Info{}; }},
    {"aj", 6, 7, "aj id value memory cpus start run [uid]", take_add_job},
    {"ag", 6, words_max - 1,
     "ag id value start run uid [pack] [spread=N] [near[=US[:MBIT]]] "
     "[COUNTx]CPUS:MEMORY[@PROVIDER][:optional]...",
     take_add_gang},
    {"dj", 1, 1, "dj id", [](Words& w) -> Command { return DeleteJob{w.job()}; }},
    {"uj", 2, 2, "uj id value",
     [](Words& w) -> Command {
         const JobKey id = w.job();
         return UpdateJob{id, w.money("value")};
     }},
    {"jmd", 1, 1, "jmd id", [](Words& w) -> Command { return MoveDone{w.job()}; }},
    {"jfd", 1, 1, "jfd id", [](Words& w) -> Command { return FreezeDone{w.job()}; }},
    {"rj", 2, 2, "rj id provider",
     [](Words& w) -> Command {
         const JobKey id = w.job();
         return PlaceJob{id, w.provider(), false};
     }},
    {"fj", 2, 2, "fj id provider",
     [](Words& w) -> Command {
         const JobKey id = w.job();
         return PlaceJob{id, {w.integer<uint64_t>("provider", 0, UINT64_MAX)}, true};
     }},
    {"ap", 5, 7, "ap id reserve memory cpus start [speed] [near=NETWORK[:US:MBIT]]",
     take_add_provider},
    {"dp", 1, 1, "dp id", [](Words& w) -> Command { return DeleteProvider{w.provider()}; }},
    {"up", 2, 2, "up id reserve",
     [](Words& w) -> Command {
         const ProviderKey id = w.provider();
         return UpdateProvider{id, w.money("reserve")};
     }},
    {"time", 1, 1, "time seconds", [](Words& w) -> Command { return Time{w.seconds("time", 0)}; }},
    {"go", 0, 0, "go", [](Words&) -> Command { return Go{}; }},
    {"alloc", 0, 0, "alloc", [](Words&) -> Command { return Alloc{}; }},
    {"payment", 0, 0, "payment", [](Words&) -> Command { return Payments{}; }},
    {"lj", 0, 0, "lj", [](Words&) -> Command { return ListJobs{}; }},
    {"lp", 0, 0, "lp", [](Words&) -> Command { return ListProviders{}; }},
    {"reset", 0, 0, "reset", [](Words&) -> Command { return Reset{}; }},
    {"set", 2, 2, "set solver NAME, set pricing NAME, or set OPTION VALUE", take_set},
    {"exit", 0, 0, "exit", [](Words&) -> Command { return Exit{}; }},
}};

std::string number(uint64_t n) { return std::to_string(n); }

struct Formatter {
    std::string operator()(const Info&) const { return "info"; }
    std::string operator()(const AddJob& a) const {
        return "aj " + number(a.id.n) + " " + format_money(a.value) + " " +
               std::to_string(a.memory_mb) + " " + std::to_string(a.cpus) + " " +
               std::to_string(a.start_s) + " " + std::to_string(a.run_s) + " " +
               std::to_string(a.user);
    }
    std::string operator()(const AddGang& a) const {
        std::string line = "ag " + number(a.id.n) + " " + format_money(a.value) + " " +
                           std::to_string(a.start_s) + " " + std::to_string(a.run_s) + " " +
                           std::to_string(a.user) + (a.layout.few ? " pack" : "");
        if (a.layout.most_on_one > 0) line += " spread=" + std::to_string(a.layout.most_on_one);
        if (a.layout.near)
            line += " near=" + std::to_string(a.layout.trip_us_most) + ":" +
                    std::to_string(a.layout.mbit_least);
        for (const AddGang::Part& p : a.parts)
            line += " " + std::to_string(p.count) + "x" + std::to_string(p.cpus) + ":" +
                    std::to_string(p.memory_mb) + (p.only.n != 0 ? "@" + number(p.only.n) : "") +
                    (p.optional ? ":optional" : "");
        return line;
    }
    std::string operator()(const DeleteJob& c) const { return "dj " + number(c.id.n); }
    std::string operator()(const UpdateJob& c) const {
        return "uj " + number(c.id.n) + " " + format_money(c.value);
    }
    std::string operator()(const MoveDone& c) const { return "jmd " + number(c.id.n); }
    std::string operator()(const FreezeDone& c) const { return "jfd " + number(c.id.n); }
    std::string operator()(const PlaceJob& c) const {
        return (c.frozen ? "fj " : "rj ") + number(c.id.n) + " " + number(c.provider.n);
    }
    std::string operator()(const AddProvider& a) const {
        return "ap " + number(a.id.n) + " " + format_money(a.reserve) + " " +
               std::to_string(a.memory_mb) + " " + std::to_string(a.cpus) + " " +
               std::to_string(a.start_s) +
               (a.speed == speed_standard ? "" : " " + std::to_string(a.speed)) +
               (a.network == 0 ? ""
                               : " near=" + std::to_string(a.network) + ":" +
                                     std::to_string(a.trip_us) + ":" + std::to_string(a.mbit));
    }
    std::string operator()(const DeleteProvider& c) const { return "dp " + number(c.id.n); }
    std::string operator()(const UpdateProvider& c) const {
        return "up " + number(c.id.n) + " " + format_money(c.reserve);
    }
    std::string operator()(const Time& c) const { return "time " + std::to_string(c.s); }
    std::string operator()(const Go&) const { return "go"; }
    std::string operator()(const Alloc&) const { return "alloc"; }
    std::string operator()(const Payments&) const { return "payment"; }
    std::string operator()(const ListJobs&) const { return "lj"; }
    std::string operator()(const ListProviders&) const { return "lp"; }
    std::string operator()(const Reset&) const { return "reset"; }
    std::string operator()(const Set& c) const { return "set " + c.what + " " + c.value; }
    std::string operator()(const Exit&) const { return "exit"; }
};

// Two words, of which the first is a job.
Result<Words> two_words(std::string_view line, std::string_view what) {
    if (line.size() > protocol_line_max) return fail(std::string(what) + ": the line is too long");
    auto words = split(line);
    if (words.size() != 2)
        return fail(std::string(what) + ": expected two words, not " + shown(line));
    words.insert(words.begin(), what);
    return Words(line, std::move(words));
}
}  // namespace

Result<Command> parse_command(std::string_view line) {
    if (line.size() > protocol_line_max)
        return fail("the line is longer than " + std::to_string(protocol_line_max) + " characters");
    auto words = split(line);
    if (words.empty()) return fail("the line is empty");
    for (const Form& form : forms) {
        if (form.name != words[0]) continue;
        const std::string name(form.name);
        if (words.size() - 1 < form.least || words.size() - 1 > form.most)
            return fail(name + ": the form is: " + std::string(form.usage));
        Words w(line, std::move(words));
        Command c = form.take(w);
        if (!w.error().empty()) return fail(name + ": " + w.error());
        return c;
    }
    return fail("no command " + shown(words[0]));
}

std::string format_command(const Command& command) { return std::visit(Formatter{}, command); }

Result<AllocLine> parse_alloc_line(std::string_view line) {
    TRY_ASSIGN(Words w, two_words(line, "allocation"));
    AllocLine a;
    a.job = w.job();
    a.provider = {w.integer<uint64_t>("provider id", 0, UINT64_MAX)};
    if (!w.error().empty()) return fail("allocation: " + w.error());
    return a;
}

Result<PaymentLine> parse_payment_line(std::string_view line) {
    TRY_ASSIGN(Words w, two_words(line, "payment"));
    PaymentLine p;
    p.job = w.job();
    p.price = w.money("price");
    if (!w.error().empty()) return fail("payment: " + w.error());
    return p;
}

std::string format_alloc_line(const AllocLine& l) {
    return number(l.job.n) + " " + number(l.provider.n);
}
std::string format_payment_line(const PaymentLine& l) {
    return number(l.job.n) + " " + format_money(l.price);
}

std::string_view error_of(std::string_view line) {
    constexpr std::string_view mark = "error: ";
    return line.starts_with(mark) ? line.substr(mark.size()) : std::string_view{};
}

}  // namespace souk::market
