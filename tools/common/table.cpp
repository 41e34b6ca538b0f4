// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <utility>

#include "kernel/base/units.hpp"
#include "tools/common/job_state.hpp"

namespace souk::tools {
namespace {

// No exponent, and no more digits than money has.
std::string decimal(double value) {
    char text[64];
    if (!std::isfinite(value) || std::fabs(value) > 1e15) return "-";
    std::snprintf(text, sizeof text, "%.6f", value);
    std::string all = text;
    all.erase(all.find_last_not_of('0') + 1);
    if (all.ends_with('.')) all.pop_back();
    return all == "-0" ? "0" : all;
}

std::string plain(const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_null()) return "-";
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (value.is_array()) {
        std::string all;
        for (const Json& each : value) all += (all.empty() ? "" : ", ") + plain(each);
        return all.empty() ? "-" : all;
    }
    if (value.is_number_float()) return decimal(value.get<double>());
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Writes a value into a table of values with commas between them.
std::string cell(const Json& value) {
    std::string text;
    if (value.is_array())
        for (const Json& each : value) text += (text.empty() ? "" : " ") + plain(each);
    else if (!value.is_null())
        text = plain(value);
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
        text.insert(at, 1, '"');
    return "\"" + text + "\"";
}

const std::string& shown(const std::string& value) {
    static const std::string none = "none";
    return value == "-" ? none : value;
}

size_t width(const std::string& text) {  // in characters, not bytes
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Json parse_json(std::string_view text) { return Json::parse(text, nullptr, false); }

Result<Json> parse_object(const Answer& answer) {
    Json json = parse_json(answer.front());
    if (!json.is_object()) return fail("the daemon's answer is not a JSON object");
    return json;
}

std::string field(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end()) return "-";
    const std::string text = plain(*it);
    return text.empty() ? "-" : text;
}

std::string rounded_money(const Json& object, const char* key) {
    const std::string text = field(object, key);
    const auto money = parse_money(text);
    return money ? human_money(*money) : text;
}

std::string duration(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end() || !it->is_number()) return "-";
    const double seconds = it->get<double>();
    if (!std::isfinite(seconds) || std::fabs(seconds) > 1e15) return "-";
    constexpr double whole_max = 9e9;  // what Nanos holds; three hundred years
    return human_span(
        Nanos{static_cast<int64_t>(std::clamp(seconds, -whole_max, whole_max) * 1e9)});
}

std::string local_time(const Json& object, const char* key) {
    const auto it = object.find(key);
    if (it == object.end() || !it->is_number()) return "-";
    const auto seconds = static_cast<time_t>(it->get<double>());
    std::tm date{};
    char text[32];
    if (!::localtime_r(&seconds, &date) || std::strftime(text, sizeof text, "%F %T", &date) == 0)
        return "-";
    return text;
}

std::string milliseconds(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end() || !it->is_number() || !std::isfinite(it->get<double>())) return "-";
    char text[64];
    const double ms = it->get<double>();
    if (ms >= 10'000 && ms < 1e15) return human_span(Nanos{static_cast<int64_t>(ms * 1e6)});
    std::snprintf(text, sizeof text, "%.1f ms", ms);
    return text;
}

std::string bytes(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end() || !it->is_number()) return "-";
    return human_bytes(static_cast<uint64_t>(std::max(0.0, it->get<double>())));
}

std::string megabytes(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end() || !it->is_number()) return "-";
    constexpr const char* units[] = {"MB", "GB", "TB", "PB"};
    double value = it->get<double>();
    size_t unit = 0;
    for (; value >= 1'024 && unit + 1 < std::size(units); ++unit) value /= 1'024;
    char text[64];
    const bool whole = value >= 99.95 || value == std::floor(value);
    std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

std::string near_text(const Json& node) {
    std::string text = field(node, "near_group");
    if (node.contains("near_round_trip_us"))
        text += ", round trip " + field(node, "near_round_trip_us") + " us";
    if (node.contains("near_mbit_per_s")) text += ", " + field(node, "near_mbit_per_s") + " Mbit/s";
    return text;
}

std::string percent(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end() || !it->is_number_integer()) return "-";
    return std::to_string((it->get<int64_t>() + 5) / 10) + "%";
}

std::string free_memory(const Json& node) {
    if (!node.contains("memory_mb") || !node.contains("free_mb")) return "-";
    std::string free = megabytes(node, "free_mb");
    const std::string all = megabytes(node, "memory_mb");
    if (const size_t unit = free.find(' '); all.ends_with(free.substr(unit))) free.resize(unit);
    return free + "/" + all;
}

std::string sent(const Json& object) {
    if (!object.contains("sending_bytes")) return "-";
    std::string text = bytes(object, "sent_bytes") + " of " + bytes(object, "sending_bytes");
    if (object.contains("sent_bytes_per_s"))
        text += ", " + bytes(object, "sent_bytes_per_s") + "/s";
    return text;
}

std::string node_state(const Json& node) {
    const std::string status = field(node, "status");
    const int64_t of = node.value("leaving_of", int64_t{0}),
                  left = node.value("leaving", int64_t{0});
    if (of <= 0 || left <= 0) return status;
    return status + ", " + std::to_string(std::max<int64_t>(0, of - left)) + " of " +
           std::to_string(of) + " guests have left";
}

std::string Table::text() const {
    std::vector<size_t> widths;
    for (const Column& column : columns_) widths.push_back(width(column.title));
    for (const auto& row : rows_)
        for (size_t i = 0; i < row.size(); ++i)
            widths[i] = std::max(widths[i], width(shown(row[i])));
    std::string out;
    const bool colours = stdout_has_colours();
    const auto line = [&](auto cell) {
        std::string text;
        for (size_t i = 0; i < columns_.size(); ++i) {
            const std::string& value = cell(i);
            const std::string pad(widths[i] - width(value), ' ');
            const std::string seen = columns_[i].state && colours ? coloured_state(value) : value;
            text += (i ? "  " : "") + (columns_[i].right ? pad + seen : seen + pad);
        }
        text.erase(text.find_last_not_of(' ') + 1);
        out += (out.empty() ? "" : "\n") + text;
    };
    line([&](size_t i) { return std::string(columns_[i].title); });
    for (const auto& row : rows_) line([&](size_t i) { return shown(row[i]); });
    return out;
}

Result<std::string> Table::text_of(const Answer& list,
                                   std::vector<std::string> (*row)(const Json&)) {
    // one at a time: a tree is many times as big as its text
    for (const std::string& part : list) {
        const Json elements = parse_json(part);
        if (!elements.is_array()) return fail("the daemon's answer is not a JSON list");
        for (const Json& element : elements) add(row(element));
    }
    return text();
}

Result<std::string> csv_of(const Answer& list, std::span<const char* const> keys) {
    std::string out;
    for (const char* key : keys) out += (out.empty() ? "" : ",") + std::string(key);
    for (const std::string& part : list) {
        const Json elements = parse_json(part);
        if (!elements.is_array()) return fail("the daemon's answer is not a JSON list");
        for (const Json& element : elements) {
            const char* before = "\n";
            for (const char* key : keys) {
                out += std::exchange(before, ",");
                if (element.is_object() && element.contains(key)) out += cell(element[key]);
            }
        }
    }
    return out;
}

std::string lines(const std::vector<std::pair<std::string, std::string>>& rows) {
    size_t widest = 0;
    for (const auto& [name, value] : rows) widest = std::max(widest, name.size());
    std::string out;
    for (const auto& [name, value] : rows)
        out += (out.empty() ? "" : "\n") + name + ":" + std::string(widest - name.size() + 2, ' ') +
               shown(value);
    return out;
}

}  // namespace souk::tools
