// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/pvdctl/rules.hpp"

#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/units.hpp"
#include "tools/common/table.hpp"
#include "tools/pvdctl/status.hpp"

namespace souk::tools {
namespace {

constexpr const char* day_names[] = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};

// Joins the words that follow a verb with one blank each, so that a frame, which has blanks, needs
// no quotes.
std::string rest_of(std::span<char*> words) {
    std::string text;
    for (const char* word : words) text += (text.empty() ? "" : " ") + std::string(word);
    return text;
}

std::string zone_of(const Json& p) {
    return field(p, "zone").empty() || field(p, "zone") == "-" ? "this machine's"
                                                               : field(p, "zone");
}

std::string promised(const Json& p, const char* key, const char* unit) {
    return field(p, key) == "0" ? "nothing promised" : "within " + field(p, key) + unit;
}

}  // namespace

Result<CtlQuestion> parse_frames(std::span<char*> words) {
    const std::string verb = words.size() > 1 ? words[1] : "list";
    const std::string value = words.size() > 2 ? rest_of(words.subspan(2)) : "";
    if (verb == "list" && value.empty()) return CtlQuestion{"provider-frames", {}, frames_text};
    if (verb != "add" && verb != "remove" && verb != "zone" && verb != "warning")
        return fail("frames: one of list, add, remove, zone, warning is wanted");
    if (value.empty()) return fail("frames " + verb + ": a value is wanted");
    if (verb != "warning") return CtlQuestion{"provider-frames", {verb, value}, frames_text};
    const auto span = parse_span(value, Nanos::from_s(1), Nanos{}, Nanos::from_s(86'400));
    if (!span) return wrap("frames warning", span.error());
    return CtlQuestion{
        "provider-frames", {verb, std::to_string(span->ns / 1'000'000'000)}, frames_text};
}

Result<CtlQuestion> parse_price(std::span<char*> words) {
    if (words.size() == 1) return CtlQuestion{"provider-price", {}, price_text};
    if (std::string_view(words[1]) != "curve")
        return fail("price: curve is wanted, or nothing (set price N sets it)");
    if (words.size() == 2) return CtlQuestion{"provider-price", {}, price_text};
    return CtlQuestion{"provider-price", {"curve", rest_of(words.subspan(2))}, price_text};
}

Result<CtlQuestion> parse_share(std::span<char*> words) {
    if (words.size() == 1) return CtlQuestion{"provider-share", {}, share_text};
    return CtlQuestion{"provider-share", {rest_of(words.subspan(1))}, share_text};
}

Result<CtlQuestion> parse_guest_rule(std::span<char*> words) {
    const std::string verb = words[0];
    if (verb == "evict") {
        if (words.size() != 2) return fail("evict: a job's id is wanted");
        TRY_ASSIGN(const JobId id, parse_job_id(words[1]));
        return CtlQuestion{"provider-evict", {id.text()}, evicted_text};
    }
    const std::string_view kind = words.size() == 3 ? words[1] : "";
    if (kind == "user" || kind == "program" || (kind == "job" && verb == "allow"))
        return CtlQuestion{"provider-" + verb, {std::string(kind) + " " + words[2]}, limits_text};
    return fail(verb + (verb == "ban" ? ": user NAME or program NAME is wanted"
                                      : ": user NAME, program NAME or job ID is wanted"));
}

Result<std::string> frames_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    if (!p.contains("frames")) return fail("no frames are told");
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Json& f : p.at("frames"))
        rows.emplace_back("Frame " + field(f, "number"), field(f, "frame"));
    if (rows.empty()) rows.emplace_back("Frames", "always");
    rows.emplace_back("Zone", zone_of(p));
    rows.emplace_back("Warning", field(p, "warning_s") == "0"
                                     ? "none"
                                     : duration(p, "warning_s") + " before a frame ends");
    rows.emplace_back("Now", field(p, "on_market") == "yes" ? "on the market" : "off the market");
    if (p.contains("opens_unix_s")) rows.emplace_back("Opens", local_time(p, "opens_unix_s"));
    if (p.contains("closes_unix_s")) rows.emplace_back("Closes", local_time(p, "closes_unix_s"));
    return lines(rows);
}

// A row for each day: the hours of a price in a row are shown once.
Result<std::string> price_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    if (!p.contains("hours") || p.at("hours").size() != 168) return fail("no prices are told");
    std::vector<std::pair<std::string, std::string>> rows = {{"Asked now", field(p, "price")}};
    if (field(p, "price_auto") == "yes")
        rows.emplace_back("Learned", field(p, "learned") + ", and at least " + field(p, "floor"));
    else
        rows.emplace_back("Otherwise", field(p, "otherwise"));
    for (const Json& r : p.at("rules"))
        rows.emplace_back("Rule", field(r, "frame") + " = " + field(r, "price"));
    rows.emplace_back("Zone", zone_of(p));
    const auto price_at = [&](int hour) { return p.at("hours").at(hour).dump(); };
    for (int day = 0; day < 7; ++day) {
        std::string text;
        for (int hour = 0; hour < 24; ++hour) {
            if (hour > 0 && price_at(day * 24 + hour) == price_at(day * 24 + hour - 1)) continue;
            text += (text.empty() ? "" : ", ") + std::to_string(hour) + ":00 " +
                    price_at(day * 24 + hour);
        }
        rows.emplace_back(day_names[day], "from " + text);
    }
    return lines(rows);
}

Result<std::string> share_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    if (!p.contains("rules")) return fail("no share is told");
    std::vector<std::pair<std::string, std::string>> rows;
    for (const Json& rule : p.at("rules")) rows.emplace_back("Share", rule.get<std::string>());
    if (rows.empty()) rows.emplace_back("Share", "all that is offered");
    rows.emplace_back("Now", lent(p) + ": " + lent_why(p, "holds"));
    rows.emplace_back("Zone", zone_of(p));
    return lines(rows);
}

Result<std::string> limits_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows = {
        {"CPUs", field(p, "cpus") + " of " + field(p, "machine_cpus")},
        {"Memory", megabytes(p, "memory_mb") + " of " + megabytes(p, "machine_memory_mb")},
        {"Processes", field(p, "pids_each") + " of one guest"},
        {"Swap",
         p.contains("swap_mb_each") ? megabytes(p, "swap_mb_each") + " of one guest" : "any"},
        {"Disk", p.contains("disk_mb_per_s_each")
                     ? field(p, "disk_mb_per_s_each") + " MB/s of one guest, to each and from it"
                     : "any"},
        {"CPU weight", field(p, "cpu_weight") + " of all guests"},
        {"Least price", field(p, "price")},
        {"Leave", "within " + field(p, "leave_s") + " s, then to the disk"},
        {"Kept free", p.contains("owner_free_mb")
                          ? megabytes(p, "owner_free_mb") + ", else who stands leaves"
                          : "nothing"},
        {"While you are here", p.contains("leave_mb_per_s")
                                   ? "at " + field(p, "leave_mb_per_s") +
                                         " MB/s of disk and network, or as a promise needs"
                                   : "as fast as it goes"},
        {"Immovable", field(p, "immovable") + " after " + field(p, "immovable_s") + " s"},
        {"CPUs free", promised(p, "free_cpu_ms", " ms")},
        {"Memory free", promised(p, "free_memory_s", " s")},
        {"Empty", promised(p, "empty_s", " s")},
    };
    if (p.contains("share")) {
        rows.emplace_back("Share", field(p, "share"));
        rows.emplace_back("Lent now", lent(p));
    }
    if (p.contains("bans"))
        for (const Json& ban : p.at("bans")) rows.emplace_back("Banned", ban.get<std::string>());
    return lines(rows);
}

Result<std::string> owner_why_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows = {
        {"Price", field(p, "price") + ": " + field(p, "price_why")}};
    if (field(p, "price_auto") == "yes")
        rows.emplace_back("", "floor " + field(p, "floor") + ", learned " + field(p, "learned") +
                                  " (pvdctl price; docs/owner.md has the rule)");
    if (p.contains("learned_hours"))
        rows.emplace_back("", "of " + field(p, "learned_hours") + " hours with a buyer; " +
                                  field(p, "best_price") + " all the time would have brought " +
                                  field(p, "best_revenue"));
    if (p.contains("learn_trouble")) rows.emplace_back("", field(p, "learn_trouble"));
    if (p.contains("lent_cpus")) rows.emplace_back("Lent", lent(p) + ": " + field(p, "lent_why"));
    rows.emplace_back("Market", std::string(field(p, "on_market") == "yes" ? "on" : "off") + ": " +
                                    field(p, "market_why"));
    if (p.contains("opens_unix_s")) rows.emplace_back("", "opens " + local_time(p, "opens_unix_s"));
    if (p.contains("closes_unix_s"))
        rows.emplace_back("", "closes " + local_time(p, "closes_unix_s"));
    if (p.contains("takes_none_why")) rows.emplace_back("No job", field(p, "takes_none_why"));
    return lines(rows);
}

}  // namespace souk::tools
