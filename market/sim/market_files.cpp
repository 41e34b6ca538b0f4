// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/market_files.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "market/core/types.hpp"

namespace souk::sim {
namespace {

// 31 years: its work in hundredths stays far from overflow
constexpr int64_t file_run_most = 1'000'000'000;
constexpr size_t fields_most = 10;

struct Field {
    const char* name;
    int64_t least, most;  // money: not used
};

// The fields of one line, with the error of the first one that is wrong.
class Line {
  public:
    Line(std::string_view text, size_t number) : number_(number) {
        text = text.substr(0, text.find('#'));
        constexpr std::string_view blanks = " \t\r";
        for (size_t at = text.find_first_not_of(blanks); at != std::string_view::npos;
             at = text.find_first_not_of(blanks, at)) {
            const size_t end = std::min(text.find_first_of(blanks, at), text.size());
            if (count_ < fields_most) words_[count_] = text.substr(at, end - at);
            ++count_;
            at = end;
        }
    }
    size_t count() const { return count_; }
    size_t number() const { return number_; }

    tl::unexpected<Error> bad(const std::string& why) const {
        return fail("line " + std::to_string(number_) + ": " + why);
    }
    tl::unexpected<Error> bad_field(size_t i, const char* name, const std::string& why) const {
        std::string word;
        for (char c : words_[i].substr(0, 24)) word += c >= ' ' && c <= '~' ? c : '?';
        return bad("field " + std::to_string(i + 1) + " (" + name + "): '" + word + "' " + why);
    }
    Result<int64_t> integer(size_t i, const Field& field) const {
        int64_t v = 0;
        const std::string_view word = words_[i];
        const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), v);
        if (code == std::errc::result_out_of_range ||
            (code == std::errc() && (v < field.least || v > field.most)))
            return bad_field(i, field.name,
                             "is out of range (" + std::to_string(field.least) + " to " +
                                 std::to_string(field.most) + ")");
        if (code != std::errc() || end != word.data() + word.size())
            return bad_field(i, field.name, "is not an integer");
        return v;
    }
    Result<Money> money(size_t i, const char* name) const {
        Result<Money> v = parse_money(words_[i]);
        if (!v) return bad_field(i, name, "is no amount: " + v.error().message);
        return v;
    }

  private:
    size_t number_;
    size_t count_ = 0;
    std::string_view words_[fields_most];
};

Result<SimJob> job_of(const Line& line) {
    if (line.count() < 6 || (line.count() > 7 && line.count() != 10))
        return line.bad("has " + std::to_string(line.count()) +
                        " fields, a job has 6 (id start run value memory cpus), 7 (user) or 10 "
                        "(home mb requests)");
    SimJob job;
    TRY_ASSIGN(job.id, line.integer(0, {"id", 1, std::numeric_limits<int64_t>::max()}));
    TRY_ASSIGN(job.start_s, line.integer(1, {"start", 0, seconds_max}));
    TRY_ASSIGN(job.run_s, line.integer(2, {"run", 1, file_run_most}));
    TRY_ASSIGN(job.value, line.money(3, "value"));
    TRY_ASSIGN(job.memory_mb, line.integer(4, {"memory", 0, market::memory_mb_max}));
    TRY_ASSIGN(const int64_t cpus, line.integer(5, {"cpus", 1, market::cpus_max}));
    job.cpus = static_cast<int32_t>(cpus);
    int64_t user = static_cast<uint32_t>(job.id);
    if (line.count() >= 7) {
        TRY_ASSIGN(user, line.integer(6, {"user", 0, UINT32_MAX}));
    }
    job.user = static_cast<uint32_t>(user);
    if (line.count() == 10) {
        using market::FileTraffic;
        TRY_ASSIGN(job.home, line.integer(7, {"home", 0, std::numeric_limits<int64_t>::max()}));
        TRY_ASSIGN(job.files_mb_per_s,
                   line.integer(8, {"mb", 0, FileTraffic::bytes_most / 1'000'000}));
        TRY_ASSIGN(job.files_requests_per_s,
                   line.integer(9, {"requests", 0, FileTraffic::requests_most}));
        if (job.home == 0 && (job.files_mb_per_s != 0 || job.files_requests_per_s != 0))
            return line.bad_field(7, "home", "is nobody, and the job reads files from there");
    }
    return job;
}

Result<SimProvider> provider_of(const Line& line) {
    if (line.count() != 7)
        return line.bad("has " + std::to_string(line.count()) +
                        " fields, a provider has 7 (id start end reserve memory cpus speed)");
    SimProvider p;
    TRY_ASSIGN(p.id, line.integer(0, {"id", 1, std::numeric_limits<int64_t>::max()}));
    TRY_ASSIGN(p.start_s, line.integer(1, {"start", 0, seconds_max}));
    TRY_ASSIGN(p.end_s, line.integer(2, {"end", -1, seconds_max}));
    if (p.end_s >= 0 && p.end_s <= p.start_s)
        return line.bad_field(2, "end", "is not after the start");
    TRY_ASSIGN(p.reserve, line.money(3, "reserve"));
    TRY_ASSIGN(p.memory_mb, line.integer(4, {"memory", 0, market::memory_mb_max}));
    TRY_ASSIGN(const int64_t cpus, line.integer(5, {"cpus", 1, market::cpus_max}));
    TRY_ASSIGN(const int64_t speed, line.integer(6, {"speed", 1, market::speed_max}));
    p.cpus = static_cast<int32_t>(cpus);
    p.speed = static_cast<int32_t>(speed);
    return p;
}

// T has an id; `read` makes one from a line.
template <class T>
Result<std::vector<T>> parse_lines(std::string_view text, Result<T> (*read)(const Line&),
                                   const char* kind) {
    struct Numbered {
        T value;
        size_t line;
    };
    std::vector<Numbered> found;
    size_t number = 0;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const Line line(text.substr(0, end), ++number);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.count() == 0) continue;
        TRY_ASSIGN(T value, read(line));
        found.push_back({std::move(value), number});
    }
    if (found.empty()) return fail(std::string("has no ") + kind + " in it");
    std::stable_sort(found.begin(), found.end(),
                     [](const Numbered& a, const Numbered& b) { return a.value.id < b.value.id; });
    std::vector<T> out;
    out.reserve(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
        if (i > 0 && found[i].value.id == found[i - 1].value.id)
            return fail("line " + std::to_string(found[i].line) +
                        ": field 1 (id): " + std::to_string(found[i].value.id) + " is the " + kind +
                        " of line " + std::to_string(found[i - 1].line) + " again");
        out.push_back(std::move(found[i].value));
    }
    return out;
}

}  // namespace

Result<std::vector<SimJob>> parse_jobs(std::string_view text) {
    return parse_lines<SimJob>(text, job_of, "job");
}

Result<std::vector<SimProvider>> parse_providers(std::string_view text) {
    return parse_lines<SimProvider>(text, provider_of, "provider");
}

std::string format_jobs(const std::vector<SimJob>& jobs, bool with_users) {
    const bool with_homes =
        std::any_of(jobs.begin(), jobs.end(), [](const SimJob& j) { return j.home != 0; });
    std::string out = with_homes   ? "# id start run value memory cpus user home mb requests\n"
                      : with_users ? "# id start run value memory cpus user\n"
                                   : "# id start run value memory cpus\n";
    for (const SimJob& j : jobs) {
        out += std::to_string(j.id) + ' ' + std::to_string(j.start_s) + ' ' +
               std::to_string(j.run_s) + ' ' + format_money(j.value) + ' ' +
               std::to_string(j.memory_mb) + ' ' + std::to_string(j.cpus);
        if (with_users || with_homes) out += ' ' + std::to_string(j.user);
        if (with_homes)
            out += ' ' + std::to_string(j.home) + ' ' + std::to_string(j.files_mb_per_s) + ' ' +
                   std::to_string(j.files_requests_per_s);
        out += '\n';
    }
    return out;
}

std::string format_providers(const std::vector<SimProvider>& providers) {
    std::string out = "# id start end reserve memory cpus speed\n";
    for (const SimProvider& p : providers)
        out += std::to_string(p.id) + ' ' + std::to_string(p.start_s) + ' ' +
               std::to_string(p.end_s) + ' ' + format_money(p.reserve) + ' ' +
               std::to_string(p.memory_mb) + ' ' + std::to_string(p.cpus) + ' ' +
               std::to_string(p.speed) + '\n';
    return out;
}

}  // namespace souk::sim
