// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/import.hpp"

#include <algorithm>
#include <limits>

#include "kernel/base/number.hpp"
#include "market/core/types.hpp"

namespace souk::sim {
namespace {

constexpr int64_t day_s = 86'400;
constexpr int64_t run_most = 1'000'000'000;
constexpr uint32_t unknown_user = 1u << 31;

Status set_integer(int64_t& to, std::string_view text, int64_t least, int64_t most) {
    const auto v = whole_number<int64_t>(text);
    if (!v || *v < least || *v > most)
        return fail("is no integer from " + std::to_string(least) + " to " + std::to_string(most));
    to = *v;
    return {};
}

Status set_factor(int64_t& micro, std::string_view text) {
    const Result<Money> v = parse_money(text);  // a decimal with at most six digits after the point
    if (!v || v->micro <= 0 || v->micro > 1'000'000'000'000)
        return fail("is no number above 0 and up to 1000000");
    micro = v->micro;
    return {};
}

Status set_distribution(Distribution& to, std::string_view text) {
    TRY_ASSIGN(to, parse_distribution(text));
    return {};
}

Status set_seed(uint64_t& to, std::string_view text) {
    int64_t v = 0;
    TRY(set_integer(v, text, 0, std::numeric_limits<int64_t>::max()));
    to = static_cast<uint64_t>(v);
    return {};
}

Status set_cpus(ImportCpus& to, std::string_view text) {
    if (text == "one")
        to = ImportCpus::one;
    else if (text == "requested")
        to = ImportCpus::requested;
    else if (text == "allocated")
        to = ImportCpus::allocated;
    else
        return fail("is none of one, requested, allocated");
    return {};
}

Status set_bool(bool& to, std::string_view text) {
    if (text != "yes" && text != "no" && text != "true" && text != "false")
        return fail("is none of yes, no");
    to = text == "yes" || text == "true";
    return {};
}

struct Key {
    std::string_view name;
    Status (*set)(ImportConfig& config, std::string_view text);
};
using C = ImportConfig;
using V = std::string_view;
constexpr Key keys[] = {
    {"use_swf", [](C& c, V v) { return set_bool(c.use_swf, v); }},
    {"trace",
     [](C& c, V v) -> Status {
         c.trace = v;
         return {};
     }},
    {"first_day", [](C& c, V v) { return set_integer(c.first_day, v, 0, 1'000'000); }},
    {"last_day", [](C& c, V v) { return set_integer(c.last_day, v, -1, 1'000'000); }},
    {"arrival_divisor", [](C& c, V v) { return set_factor(c.arrival_divisor_micro, v); }},
    {"run_multiplier", [](C& c, V v) { return set_factor(c.run_multiplier_micro, v); }},
    {"jobs", [](C& c, V v) { return set_integer(c.jobs_max, v, -1, INT32_MAX); }},
    {"value", [](C& c, V v) { return set_distribution(c.value, v); }},
    {"cpus", [](C& c, V v) { return set_cpus(c.cpus, v); }},
    {"memory", [](C& c, V v) { return set_distribution(c.memory, v); }},
    {"users", [](C& c, V v) { return set_bool(c.users, v); }},
    {"interarrival", [](C& c, V v) { return set_distribution(c.interarrival, v); }},
    {"run", [](C& c, V v) { return set_distribution(c.run, v); }},
    {"providers", [](C& c, V v) { return set_integer(c.providers, v, 1, 1'000'000); }},
    {"speed", [](C& c, V v) { return set_distribution(c.speed, v); }},
    {"reservation", [](C& c, V v) { return set_distribution(c.reservation, v); }},
    {"provider_cpus", [](C& c, V v) { return set_distribution(c.provider_cpus, v); }},
    {"provider_memory", [](C& c, V v) { return set_distribution(c.provider_memory, v); }},
    {"seed", [](C& c, V v) { return set_seed(c.seed, v); }},
};
constexpr size_t key_count = sizeof keys / sizeof keys[0];

// Older import files call some keys by other names. Both names stand here as plain() writes them.
constexpr std::pair<V, V> aliases[] = {
    {"swffile", "trace"},
    {"tracefile", "trace"},
    {"runtimemultiplier", "runmultiplier"},
    {"numjobs", "jobs"},
    {"values", "value"},
    {"valuedistribution", "value"},
    {"numproviders", "providers"},
    {"speeddistribution", "speed"},
    {"reservationdistribution", "reservation"},
    {"reservationprice", "reservation"},
    {"swfstart", "firstday"},
    {"swfend", "lastday"},
    {"swfdivstart", "arrivaldivisor"},
    {"swfmulruntime", "runmultiplier"},
    {"jobsnum", "jobs"},
    {"providersnum", "providers"},
};

// Takes out of a key what does not distinguish it: capitals and underscores.
std::string plain(V name) {
    std::string out;
    for (const char c : name)
        if (c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return out;
}

const Key* find_key(V name) {
    std::string wanted = plain(name);
    for (const auto& [alias, key] : aliases)
        if (wanted == alias) wanted = key;
    const Key* key =
        std::find_if(keys, keys + key_count, [&](const Key& k) { return plain(k.name) == wanted; });
    return key == keys + key_count ? nullptr : key;
}

V trimmed(V text) {
    constexpr V blanks = " \t\r";
    const size_t from = text.find_first_not_of(blanks);
    return from == V::npos ? V() : text.substr(from, text.find_last_not_of(blanks) - from + 1);
}

// Cuts a comment off the line. A # inside quotes begins no comment.
V without_comment(V line) {
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
        quoted ^= line[i] == '"';
        if (line[i] == '#' && !quoted) return line.substr(0, i);
    }
    return line;
}

std::string printable(V text) {
    std::string out;
    for (const char c : text.substr(0, 60)) out += c >= ' ' && c <= '~' ? c : '?';
    return out;
}

int64_t scaled(int64_t v, int64_t by_micro) {
    return static_cast<int64_t>((static_cast<__int128>(v) * by_micro + 500'000) / 1'000'000);
}

// Older import files name a distribution and its numbers by two keys: valueDist = uniform,
// valueDistArgs = 10 60.
class SplitDistributions {
  public:
    // Returns whether the key is one of these. Errors: it was there before.
    Result<bool> take(V name, V value, size_t line) {
        const std::string wanted = plain(name);
        for (Split& one : all_)
            for (const bool args : {false, true}) {
                if (wanted != std::string(one.key) + (args ? "distargs" : "dist")) continue;
                Half& half = args ? one.args : one.kind;
                if (half.line)
                    return fail("is set in line " + std::to_string(half.line) + " already");
                half = {line, std::string(value)};
                std::replace(half.text.begin(), half.text.end(), ',', ' ');
                return true;
            }
        return false;
    }
    // `line_of`: the line that has the one key which says the same, 0: none.
    template <class LineOf>
    Status finish(ImportConfig& config, LineOf&& line_of) const {
        for (const Split& one : all_) {
            if (!one.kind.line && !one.args.line) continue;
            const std::string key(one.key);
            if (!one.kind.line || !one.args.line)
                return fail(key + (one.kind.line
                                       ? "Dist needs " + key + "DistArgs, its numbers"
                                       : "DistArgs needs " + key + "Dist, what they are of"));
            const std::string where = "line " + std::to_string(one.kind.line) + ": " + key + "Dist";
            if (const size_t line = line_of(*find_key(one.key)); line)
                return fail(where + ": " + key + " is set in line " + std::to_string(line) +
                            " already");
            const std::string both = one.kind.text + " " + one.args.text;
            if (const Status set = find_key(one.key)->set(config, both); !set)
                return fail(where + ": " + set.error().message);
        }
        return {};
    }

  private:
    struct Half {
        size_t line = 0;
        std::string text;
    };
    struct Split {
        V key;
        Half kind, args;
    };
    Split all_[3] = {{"value", {}, {}}, {"speed", {}, {}}, {"reservation", {}, {}}};
};

}  // namespace

Result<ImportConfig> parse_import_config(std::string_view text) {
    ImportConfig config;
    size_t seen[key_count] = {};
    size_t number = 0;
    SplitDistributions split;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        const V line = trimmed(without_comment(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.empty()) continue;
        const std::string where = "line " + std::to_string(number) + ": ";
        const size_t equals = line.find('=');
        if (equals == V::npos)
            return fail(where + "'" + printable(line) + "' is not of the form key = value");
        const V name = trimmed(line.substr(0, equals));
        V value = trimmed(line.substr(equals + 1));
        if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
            value = value.substr(1, value.size() - 2);
        const auto is_split = split.take(name, value, number);
        if (!is_split) return fail(where + printable(name) + " " + is_split.error().message);
        if (*is_split) continue;
        const Key* key = find_key(name);
        if (!key) return fail(where + "no key '" + printable(name) + "'");
        size_t& line_seen = seen[key - keys];
        if (line_seen)
            return fail(where + printable(name) + " is set in line " + std::to_string(line_seen) +
                        " already");
        line_seen = number;
        if (const Status set = key->set(config, value); !set)
            return fail(where + printable(name) + ": '" + printable(value) + "' " +
                        set.error().message);
    }
    TRY(split.finish(config, [&seen](const Key& key) { return seen[&key - keys]; }));
    if (config.use_swf && config.trace.empty()) return fail("trace is not set");
    if (!config.use_swf && config.jobs_max < 0)
        return fail("jobs is not set: use_swf = no needs a number of jobs");
    if (config.providers == 0) return fail("providers is not set");
    if (config.last_day >= 0 && config.last_day < config.first_day)
        return fail("last_day is before first_day");
    return config;
}

namespace {

// Each kind of thing is drawn from a stream of random numbers of its own, so that more jobs leave
// the providers as they are.
Rng providers_of(Imported& out, const ImportConfig& c) {
    Rng providers(c.seed * 2 + 1);
    for (int64_t id = 1; id <= c.providers; ++id) {
        SimProvider p;
        p.id = id;
        p.reserve = Money::units(c.reservation.draw(providers, 0));
        p.speed =
            static_cast<int32_t>(std::min<int64_t>(c.speed.draw(providers, 1), market::speed_max));
        p.cpus = static_cast<int32_t>(c.provider_cpus.draw(providers, 1));
        p.memory_mb = c.provider_memory.draw(providers, 0);
        out.providers.push_back(p);
    }
    return Rng(c.seed * 2);
}

// The start of a job after the division by arrival_divisor; nullopt if it is beyond the market's
// clock.
std::optional<int64_t> start_of(int64_t at_s, const ImportConfig& c) {
    const __int128 start_s = static_cast<__int128>(at_s) * 1'000'000 / c.arrival_divisor_micro;
    if (start_s > seconds_max) return std::nullopt;
    return static_cast<int64_t>(start_s);
}

int64_t run_of(int64_t run_s, const ImportConfig& c) {
    return std::clamp<int64_t>(scaled(run_s, c.run_multiplier_micro), 1, run_most);
}

}  // namespace

Result<Imported> import_trace(const SwfTrace& trace, const ImportConfig& c) {
    Imported out;
    Rng jobs = providers_of(out, c);
    int32_t widest = 1;
    for (const SimProvider& p : out.providers) widest = std::max(widest, p.cpus);
    std::vector<const SwfJob*> order;
    for (const SwfJob& job : trace.jobs) {
        if (job.submit_s >= 0)
            order.push_back(&job);
        else
            ++out.dropped_no_submit;
    }
    if (order.empty()) return fail("no job of the trace has a submit time");
    std::stable_sort(order.begin(), order.end(),
                     [](auto* a, auto* b) { return a->submit_s < b->submit_s; });
    const int64_t zero_s = order.front()->submit_s + c.first_day * day_s;
    for (const SwfJob* log : order) {
        const int64_t at = log->submit_s - zero_s;
        if (at < 0 || (c.last_day >= 0 && at >= (c.last_day - c.first_day + 1) * day_s)) continue;
        if (c.jobs_max >= 0 && static_cast<int64_t>(out.jobs.size()) >= c.jobs_max) break;
        const int32_t first = c.cpus == ImportCpus::requested ? log->requested : log->allocated;
        const int32_t second = c.cpus == ImportCpus::requested ? log->allocated : log->requested;
        const int32_t width =
            c.cpus == ImportCpus::one ? 1 : std::max(1, first > 0 ? first : second);
        out.dropped_no_run += log->run_s < 0;
        out.dropped_too_wide += log->run_s >= 0 && width > widest;
        if (log->run_s < 0 || width > widest) continue;
        SimJob job;
        job.id = static_cast<int64_t>(out.jobs.size()) + 1;
        const std::optional<int64_t> start_s = start_of(at, c);
        if (!start_s)
            return fail("line " + std::to_string(log->line) +
                        ": with this arrival_divisor the job comes after second " +
                        std::to_string(seconds_max));
        job.start_s = *start_s;
        job.run_s = run_of(log->run_s, c);
        job.value = Money::units(c.value.draw(jobs, 1));
        const int64_t drawn_mb = c.memory.draw(jobs, 0);
        const int64_t kb = log->used_kb > 0 ? log->used_kb : log->requested_kb;
        job.memory_mb =
            kb > 0 ? std::min(market::memory_mb_max, (kb * width + 1023) / 1024) : drawn_mb;
        job.cpus = width;
        // A job of an unknown user gets a user of its own, above the numbers of the known ones.
        job.user = c.users && log->user >= 0
                       ? static_cast<uint32_t>(log->user)
                       : (c.users ? unknown_user : 0) + static_cast<uint32_t>(job.id);
        out.jobs.push_back(job);
    }
    if (out.jobs.empty()) return fail("no job of the trace is left by this configuration");
    return out;
}

Result<Imported> draw_workload(const ImportConfig& c) {
    Imported out;
    Rng jobs = providers_of(out, c);
    int64_t at_s = 0;
    for (int64_t id = 1; id <= c.jobs_max; ++id) {
        SimJob job;
        job.id = id;
        const std::optional<int64_t> start_s = start_of(at_s, c);
        if (!start_s)
            return fail("job " + std::to_string(id) + " comes after second " +
                        std::to_string(seconds_max));
        job.start_s = *start_s;
        job.run_s = run_of(c.run.draw(jobs, 1), c);
        job.value = Money::units(c.value.draw(jobs, 1));
        job.memory_mb = c.memory.draw(jobs, 0);
        job.user = static_cast<uint32_t>(id);
        out.jobs.push_back(job);
        at_s += c.interarrival.draw(jobs, 0);
    }
    if (out.jobs.empty()) return fail("there is no job to draw: jobs = 0");
    return out;
}

std::optional<double> offered_load(const Imported& workload) {
    double work = 0, speed = 0;
    int64_t first = INT64_MAX, last = 0;
    for (const SimJob& job : workload.jobs) {
        work += static_cast<double>(job.run_s) * job.cpus;
        first = std::min(first, job.start_s);
        last = std::max(last, job.start_s);
    }
    for (const SimProvider& p : workload.providers)
        speed += static_cast<double>(p.speed) / 100 * p.cpus;
    if (last <= first || speed <= 0) return std::nullopt;
    return work / (speed * static_cast<double>(last - first));
}

}  // namespace souk::sim
