// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/swf.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace souk::sim {
namespace {

constexpr int field_count = 18;
constexpr size_t line_max = 64 * 1024;
constexpr int64_t out_of_range = INT64_MAX;
constexpr int64_t id_most = INT64_MAX - 1;
constexpr int64_t submit_most = 1'000'000'000'000;  // 31,700 years: no sum over a log can overflow
// Digits that fit 64 bits whatever they are.
constexpr int digits_max = 18;

constexpr const char* field_names[field_count] = {"job number",
                                                  "submit time",
                                                  "wait time",
                                                  "run time",
                                                  "allocated processors",
                                                  "average CPU time",
                                                  "used memory",
                                                  "requested processors",
                                                  "requested time",
                                                  "requested memory",
                                                  "status",
                                                  "user",
                                                  "group",
                                                  "executable",
                                                  "queue",
                                                  "partition",
                                                  "preceding job",
                                                  "think time"};

// The fields that a SwfJob keeps as 32 bits (bit = index of the field); 0 and 1 are kept as 64.
constexpr uint32_t kept32 = 1u << 3 | 1u << 4 | 1u << 6 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 11;
constexpr uint32_t kept = kept32 | 1u << 0 | 1u << 1;
// Seconds and kilobytes: the average of several processors may have a fraction.
constexpr uint32_t rounded = 1u << 1 | 1u << 3 | 1u << 6 | 1u << 8 | 1u << 9;

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string quoted_word(const char* p) {
    const char* end = p;
    while (!blank(*end) && *end != '\n' && end - p < 24) ++end;
    std::string out = "'";
    for (; p < end; ++p) out += *p >= ' ' && *p <= '~' ? *p : '?';
    return out + "'";
}

}  // namespace

tl::unexpected<Error> SwfParser::bad(int field, std::string_view why) const {
    std::string message = "line " + std::to_string(line_) + ": ";
    if (field >= 0)
        message += "field " + std::to_string(field + 1) + " (" + field_names[field] + "): ";
    return fail(message + std::string(why));
}

Status SwfParser::feed(std::string_view piece) {
    if (piece.empty()) return {};
    const void* last = memrchr(piece.data(), '\n', piece.size());
    if (!last) {
        tail_ += piece;
    } else {
        const char* from = piece.data();
        const char* end = static_cast<const char*>(last) + 1;
        if (!tail_.empty()) {
            const char* first = static_cast<const char*>(memchr(from, '\n', piece.size())) + 1;
            tail_.append(from, first);
            TRY(lines_of(tail_.data(), tail_.data() + tail_.size()));
            from = first;
        }
        TRY(lines_of(from, end));
        tail_.assign(end, piece.data() + piece.size());
    }
    if (tail_.size() > line_max) {
        ++line_;
        return bad(-1, "longer than 65536 bytes: this is no SWF text");
    }
    return {};
}

// [from, end) is whole lines: every line has its '\n', at which each loop below stops.
Status SwfParser::lines_of(const char* from, const char* end) {
    const char* p = from;
    while (p < end) {
        ++line_;
        while (blank(*p)) ++p;
        if (*p == '\n') {
            ++p;
        } else if (*p == ';') {
            const char* eol = static_cast<const char*>(memchr(p, '\n', end - p));
            header_line({p, static_cast<size_t>(eol - p)});
            p = eol + 1;
        } else {
            TRY(job_line(p));
        }
    }
    return {};
}

Status SwfParser::job_line(const char*& p) {
    int64_t fields[field_count];
    const char* text = p;
    for (int i = 0; i < field_count; ++i) {
        while (blank(*p)) ++p;
        if (*p == '\n') return bad(-1, "has " + std::to_string(i) + " fields, a job has 18");
        if (*p == '-' && p[1] == '1' && blank(p[2])) {  // unknown: half of all fields
            fields[i] = -1;
            p += 2;
            continue;
        }
        const char* word = p;
        const bool negative = *p == '-';
        p += negative || *p == '+';
        const char* digits = p;
        uint64_t v = 0;
        for (unsigned d; (d = static_cast<unsigned char>(*p) - '0') <= 9; ++p) v = v * 10 + d;
        const bool any = p != digits;
        // Past 18 digits v may have wrapped: such a number is out of range, whatever it is.
        fields[i] = p - digits > digits_max ? out_of_range
                    : negative              ? -static_cast<int64_t>(v)
                                            : static_cast<int64_t>(v);
        if (*p == '.' && (any || (p[1] >= '0' && p[1] <= '9'))) {
            const bool up = !negative && p[1] >= '5' && p[1] <= '9';
            do ++p;
            while (*p >= '0' && *p <= '9');
            if (rounded >> i & 1)
                fields[i] += up && fields[i] != out_of_range;
            else if ((blank(*p) || *p == '\n') && (kept >> i & 1))
                return bad(i, quoted_word(word) + " has a fraction, an integer is needed");
        } else if (!any) {
            return bad(i, quoted_word(word) + " is not a number");
        }
        if (!blank(*p) && *p != '\n') return bad(i, quoted_word(word) + " is not a number");
    }
    while (blank(*p)) ++p;
    if (*p != '\n') return bad(-1, "has more than 18 fields, a job has 18");
    ++p;
    return keep(fields, text);
}

Status SwfParser::keep(const int64_t* f, const char* text) {
    for (int i = 0; i < field_count; ++i) {
        if (!(kept >> i & 1)) continue;
        const int64_t most = kept32 >> i & 1 ? INT32_MAX : i == 0 ? id_most : submit_most;
        const int64_t least = i == 0 ? 0 : -1;
        if (f[i] >= least && f[i] <= most) continue;
        const char* word = text;  // the line again, to quote the field
        for (int skip = 0; skip < i; ++skip) {
            while (!blank(*word)) ++word;
            while (blank(*word)) ++word;
        }
        if (f[i] > most)
            return bad(
                i, quoted_word(word) + " is out of range (at most " + std::to_string(most) + ")");
        return bad(i, quoted_word(word) + (i == 0 ? " is negative, every job needs one"
                                                  : " is negative, only -1 (unknown) may be"));
    }
    const bool is_part = f[10] >= 2 && f[10] <= 4;
    if (!is_part) {
        ids_ascend_ &= f[0] > id_max_;
        id_max_ = std::max(id_max_, f[0]);
    }
    const auto narrow = [](int64_t v) { return static_cast<int32_t>(v); };
    (is_part ? parts_ : trace_.jobs)
        .push_back({.id = f[0],
                    .submit_s = f[1],
                    .run_s = narrow(f[3]),
                    .allocated = narrow(f[4]),
                    .requested = narrow(f[7]),
                    .requested_s = narrow(f[8]),
                    .used_kb = narrow(f[6]),
                    .requested_kb = narrow(f[9]),
                    .user = narrow(f[11]),
                    .line = static_cast<uint32_t>(line_)});
    return {};
}

// "; MaxProcs: 1664 (72, 1368, 224)": the number after the key; anything else of the header is for
// people.
void SwfParser::header_line(std::string_view line) {
    constexpr std::string_view key = "MaxProcs:";
    size_t at = line.find_first_not_of("; \t");
    if (at == std::string_view::npos || line.substr(at, key.size()) != key) return;
    at += key.size();
    while (at < line.size() && blank(line[at])) ++at;
    int64_t v = 0;
    for (; at < line.size() && line[at] >= '0' && line[at] <= '9' && v <= INT32_MAX; ++at)
        v = v * 10 + (line[at] - '0');
    if (v > 0 && v <= INT32_MAX) trace_.max_procs = v;
}

Status SwfParser::no_duplicates() const {
    std::vector<std::pair<int64_t, uint32_t>> ids;
    ids.reserve(trace_.jobs.size());
    for (const SwfJob& job : trace_.jobs) ids.emplace_back(job.id, job.line);
    std::sort(ids.begin(), ids.end());
    // of the duplicates, the one that the text shows first
    const std::pair<int64_t, uint32_t>* first = nullptr;
    for (size_t i = 1; i < ids.size(); ++i)
        if (ids[i].first == ids[i - 1].first && (!first || ids[i].second < first[0].second))
            first = &ids[i];
    if (!first) return {};
    return fail("line " + std::to_string(first->second) +
                ": field 1 (job number): " + std::to_string(first->first) + " is the job of line " +
                std::to_string(first[-1].second) + " again");
}

// Parts that no line has as a whole make one job.
void SwfParser::join_parts() {
    std::vector<int64_t> whole;
    whole.reserve(trace_.jobs.size());
    for (const SwfJob& job : trace_.jobs) whole.push_back(job.id);
    std::sort(whole.begin(), whole.end());
    std::map<int64_t, size_t> joined;  // where its job is
    for (const SwfJob& part : parts_) {
        if (std::binary_search(whole.begin(), whole.end(), part.id)) continue;
        const auto [it, first] = joined.try_emplace(part.id, trace_.jobs.size());
        if (first) {
            trace_.jobs.push_back(part);
            continue;
        }
        SwfJob& job = trace_.jobs[it->second];
        const int64_t run = int64_t{std::max(job.run_s, 0)} + std::max(part.run_s, 0);
        if (part.run_s >= 0) job.run_s = static_cast<int32_t>(std::min<int64_t>(run, INT32_MAX));
        if (part.submit_s >= 0 && (job.submit_s < 0 || part.submit_s < job.submit_s))
            job.submit_s = part.submit_s;
    }
}

Result<SwfTrace> SwfParser::finish() {
    if (!tail_.empty()) {
        tail_ += '\n';
        TRY(lines_of(tail_.data(), tail_.data() + tail_.size()));
        tail_.clear();
    }
    if (!ids_ascend_) TRY(no_duplicates());
    if (!parts_.empty()) join_parts();
    if (trace_.jobs.empty())
        return fail(line_ == 0 ? "is empty"
                               : "has no job in its " + std::to_string(line_) + " lines");
    return std::move(trace_);
}

Result<SwfTrace> parse_swf(std::string_view text) {
    SwfParser parser;
    TRY(parser.feed(text));
    return parser.finish();
}

}  // namespace souk::sim
