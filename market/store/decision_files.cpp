// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/decision_files.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/store/sha256.hpp"

namespace souk {
namespace {

constexpr size_t segment_hash_digits = 64, block_digits = 12, name_digits = 12, salt_digits = 24;
constexpr int64_t segment_bytes_max = 8 << 20, segment_bytes_min = 32 << 10;
constexpr size_t segments_wanted = 16;  // so that a sixteenth of the log goes at once
constexpr Nanos one_day = Nanos::from_s(86'400), segment_age_max = one_day;
constexpr size_t part_bytes = 96 * 1024;
constexpr size_t read_bytes_max = size_t{1} << 31;

std::string first_segment_hash() { return std::string(segment_hash_digits, '0'); }
std::string next_hash(const std::string& head, std::string_view block) {
    return sha256_of_parts({head, "\n", block});
}

// A text of hexadecimal digits that nobody guesses; made once.
Result<std::string> secret_of(const std::string& dir) {
    const std::string file = dir + "/secret";
    if (auto known = read_file(AT_FDCWD, file); known) return known;
    unsigned char bytes[32];
    if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return fail_errno("getrandom", errno);
    const std::string secret =
        sha256_hex({reinterpret_cast<const char*>(bytes), sizeof bytes}) + "\n";
    TRY(replace_file(file, secret, 0600, true));
    return secret;
}

// The field of a line that stands after so many blanks.
std::string_view field(std::string_view line, size_t blanks) {
    for (; blanks > 0; --blanks) {
        const size_t at = line.find(' ');
        if (at == std::string_view::npos) return {};
        line.remove_prefix(at + 1);
    }
    return line.substr(0, std::min(line.find(' '), line.find('\n')));
}

int64_t size_of(const std::string& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 ? st.st_size : 0;
}

}  // namespace

Pseudonymizer::Name Pseudonymizer::named(const std::string& id, const std::string& salted) const {
    const std::string salt = sha256_hex(secret_ + " " + salted).substr(0, salt_digits);
    return {salt, sha256_hex(salt + " " + id).substr(0, name_digits)};
}

Pseudonymizer::Name Pseudonymizer::user(uint32_t uid, Nanos at) const {
    return named(user_id(uid), user_id(uid) + " day " + std::to_string(at.ns / one_day.ns));
}

std::string DecisionFiles::path(uint64_t segment, const char* end) const {
    const std::string digits = std::to_string(segment);
    return dir_ + "/" + std::string(8 - std::min<size_t>(8, digits.size()), '0') + digits + end;
}

Result<DecisionFiles> DecisionFiles::open(const std::string& dir, Bounds bounds) {
    if (::mkdir(dir.c_str(), 0700) < 0 && errno != EEXIST) return fail_errno("make " + dir, errno);
    TRY_ASSIGN(std::string secret, secret_of(dir));
    DecisionFiles files(dir, bounds, Pseudonymizer(std::move(secret)));
    TRY(files.find_segments());
    TRY(files.read_newest());
    return files;
}

Status DecisionFiles::find_segments() {
    TRY_ASSIGN(const auto names, list_dir(AT_FDCWD, dir_));
    for (const std::string& name : names) {
        if (!name.ends_with(".log")) continue;
        const auto segment = leading_number<uint64_t>(name);
        if (!segment) continue;
        TRY_ASSIGN(const Fd file, open_at(AT_FDCWD, dir_ + "/" + name, O_RDONLY));
        char begin[160];
        const ssize_t n = ::pread(file.get(), begin, sizeof begin, 0);
        const std::string_view line(begin, static_cast<size_t>(std::max<ssize_t>(0, n)));
        const auto begun = whole_number<int64_t>(field(line, 3));
        segments_[*segment] = {Nanos{begun.value_or(0)},
                               size_of(path(*segment, ".log")) + size_of(path(*segment, ".names"))};
    }
    return {};
}

// Finds what the newest segment's blocks say, and cuts off half a block at its end.
Status DecisionFiles::read_newest() {
    head_ = first_segment_hash();
    if (segments_.empty()) return {};
    const std::string file = path(segments_.rbegin()->first, ".log");
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, file, read_bytes_max));
    if (const std::string_view hash = field(text, 4); hash.size() == segment_hash_digits)
        head_ = hash;
    size_t block = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\n', at);
        if (end == std::string::npos) break;
        const std::string_view line(text.data() + at, end - at);
        if (line.starts_with("D ")) {
            const auto number = whole_number<uint64_t>(field(line, 1));
            number_ = std::max(number_, number.value_or(0));
        } else if (line.starts_with("# ")) {
            head_ = next_hash(head_, std::string_view(text).substr(block, at - block));
            block = end + 1;
        }
        at = end + 1;
    }
    if (block < text.size() && ::truncate(file.c_str(), static_cast<off_t>(block)) != 0)
        return fail_errno("cut " + file, errno);
    return {};
}

bool DecisionFiles::wants_segment(Nanos now) const {
    if (!file_) return true;
    const Segment& newest = segments_.rbegin()->second;
    const int64_t limit =
        std::max({std::clamp<int64_t>(bounds_.bytes_max / static_cast<int64_t>(segments_wanted),
                                      segment_bytes_min, segment_bytes_max),
                  std::min(4 * snapshot_bytes_, bounds_.bytes_max / 4)});
    return newest.bytes >= limit || now - newest.begun >= segment_age_max;
}

Status DecisionFiles::begin_segment(Nanos now, std::string& header) {
    const uint64_t segment = segments_.empty() ? 1 : segments_.rbegin()->first + 1;
    file_.reset();
    names_.reset();
    trim(now, bounds_.bytes_max - bounds_.bytes_max / static_cast<int64_t>(segments_wanted));
    header = "S 4 " + std::to_string(segment) + " " + std::to_string(now.ns) + " " + head_ + "\n";
    constexpr int how = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
    TRY_ASSIGN(Fd file, open_at(AT_FDCWD, path(segment, ".log"), how, 0600));
    auto names = open_at(AT_FDCWD, path(segment, ".names"), how, 0600);
    if (!names) {
        ::unlink(path(segment, ".log").c_str());
        return tl::unexpected(names.error());
    }
    file_ = std::move(file);
    names_ = std::move(*names);
    segments_[segment] = {now, 0};
    log_bytes_ = 0;
    return {};
}

Status DecisionFiles::append(const std::string& block, uint64_t number, const Named& named,
                             bool begins, Nanos now) {
    MUST(begins || file_);
    std::string text;
    if (begins) TRY(begin_segment(now, text));
    text += block;
    std::string head = next_hash(head_, text);
    text += "# " + head.substr(0, block_digits) + "\n";
    std::string rows;
    for (const auto& n : named)
        rows += n.job_name + " " + n.user_name + " " + std::to_string(n.uid) + " " + n.job.text() +
                " " + n.user + "\n";
    const std::string file = path(segments_.rbegin()->first, ".log");
    Status written = write_all(names_.get(), rows, "write " + dir_);
    if (written) written = write_all(file_.get(), text, "write " + file);
    if (!written) {  // the block is whole, or it is not there
        const bool cut = !begins && ::ftruncate(file_.get(), static_cast<off_t>(log_bytes_)) == 0;
        if (begins && ::unlink(file.c_str()) == 0) segments_.erase(segments_.rbegin()->first);
        file_.reset();
        names_.reset();
        return cut || begins ? written : wrap("half a block is left", written.error());
    }
    head_ = std::move(head);
    number_ = number;
    log_bytes_ += std::ssize(text);
    const auto bytes = static_cast<int64_t>(text.size() + rows.size());
    segments_.rbegin()->second.bytes += bytes;
    if (begins) snapshot_bytes_ = bytes;
    trim(now, INT64_MAX);
    return {};
}

int64_t DecisionFiles::bytes() const {
    int64_t sum = 0;
    for (const auto& [number, segment] : segments_) sum += segment.bytes;
    return sum;
}

// A segment is as old as its newest decision: the next one's beginning.
bool DecisionFiles::oldest_is_old(Nanos now) const {
    if (bounds_.age_max.ns == 0 || segments_.size() < 2) return false;
    return now - std::next(segments_.begin())->second.begun > bounds_.age_max;
}

void DecisionFiles::trim(Nanos now, int64_t bytes_max) {
    while (!segments_.empty() && (oldest_is_old(now) || bytes() > bytes_max)) {
        for (const char* end : {".log", ".names"})
            ::unlink(path(segments_.begin()->first, end).c_str());
        segments_.erase(segments_.begin());
    }
}

// -------------------------------------------------------------------------------------------------
// reading

// "j PSEUDONYM SALT JOB" and "u PSEUDONYM SALT UID USER" of those that the asker may see. The day
// of a user's pseudonym is that on which the segment's snapshot was made, before it began; a
// segment of a version before has lasting ones.
std::string DecisionFiles::names_of(const std::string& rows, const Ask& ask, Nanos begun) const {
    const auto of_user = [&](uint32_t uid, std::string_view name) {
        for (const Nanos at : {begun, begun - one_day})
            if (auto daily = pseudonyms_.user(uid, at); daily.text == name) return daily;
        return pseudonyms_.lasting_user(uid);
    };
    std::string text;
    for (size_t at = 0; at < rows.size();) {
        const size_t end = std::min(rows.find('\n', at), rows.size());
        const std::string_view row(rows.data() + at, end - at);
        at = end + 1;
        const auto uid = whole_number<uint32_t>(field(row, 2));
        if (!uid || (ask.uid && *ask.uid != *uid)) continue;
        const std::string job(field(row, 3)), name(field(row, 1)), user(field(row, 4));
        text += "N j " + std::string(field(row, 0)) + " " + pseudonyms_.job(job).salt + " " + job +
                "\nN u " + name + " " + of_user(*uid, name).salt + " " + std::to_string(*uid) +
                " " + user + "\n";
    }
    return text;
}

Result<std::string> DecisionFiles::read(const Ask& ask, const std::string& after,
                                        std::string& next) const {
    if (segments_.empty()) return std::string("E\n");
    const bool names = after.starts_with("n");
    std::string_view rest = after;
    if (!rest.empty()) rest.remove_prefix(1);
    const uint64_t segment = take_number<uint64_t>(rest).value_or(0);
    if (!rest.empty()) rest.remove_prefix(1);
    const auto offset = whole_number<int64_t>(rest).value_or(0);
    auto first = segments_.begin();
    while (std::next(first) != segments_.end() && std::next(first)->second.begun <= ask.from)
        ++first;
    auto at = segments_.lower_bound(segment);
    if (segment < first->first || at == segments_.end()) at = first;
    const bool here = at->first == segment;
    const int64_t from = here ? offset : 0;
    const char kind = names ? 'n' : 'd';
    const std::string file = path(at->first, names ? ".names" : ".log");
    TRY_ASSIGN(const Fd open, open_at(AT_FDCWD, file, O_RDONLY));
    std::string text(part_bytes, '\0');
    const ssize_t n = ::pread(open.get(), text.data(), text.size(), from);
    if (n < 0) return fail_errno("read " + file, errno);
    text.resize(static_cast<size_t>(n));
    if (names) text.resize(text.rfind('\n') + 1);
    const auto following = std::next(at);
    const bool more = static_cast<size_t>(n) == part_bytes && !text.empty();
    if (more)
        next = kind + std::to_string(at->first) + ":" + std::to_string(from + std::ssize(text));
    else if (following != segments_.end() && following->second.begun <= ask.to)
        next = kind + std::to_string(following->first) + ":0";
    else if (!names)
        next = "n0:0";
    if (names) text = names_of(text, ask, at->second.begun);
    return next.empty() ? text + "E\n" : text;
}

}  // namespace souk
