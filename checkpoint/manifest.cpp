// SPDX-License-Identifier: GPL-2.0-or-later
// The manifest as text: one line a fact, in this order, and in the end a digest of all lines
// before. Pure.
#include <algorithm>
#include <cerrno>

#include "checkpoint/images.hpp"

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {
std::string digest_of(std::string_view text) {
    Digest d;
    d.add(text);
    return d.hex();
}

// Reads the lines "key value" one after the other.
class Lines {
  public:
    explicit Lines(std::string_view text) : text_(text) {}
    bool done() const { return text_.empty(); }
    // The value of the next line if its key is `key`; else nothing is taken.
    bool take(std::string_view key, std::string& value) {
        const size_t end = text_.find('\n');
        if (end == std::string_view::npos) return false;
        const std::string_view line = text_.substr(0, end);
        if (line.size() < key.size() + 1 || !line.starts_with(key) || line[key.size()] != ' ')
            return false;
        value = line.substr(key.size() + 1);
        text_.remove_prefix(end + 1);
        return true;
    }
    bool take(std::string_view key, uint64_t& value) {
        std::string text;
        return take(key, text) && number(text, value);
    }
    static bool number(std::string_view text, uint64_t& value) {
        const auto found = whole_number<uint64_t>(text);
        value = found.value_or(0);
        return found.has_value();
    }

  private:
    std::string_view text_;
};

bool valid_digest(std::string_view d) {
    return d.size() == 32 && d.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "LENGTH DIGEST NAME"
bool parse_file(std::string_view line, ImageFile& file) {
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return false;
    file.digest = line.substr(first + 1, second - first - 1);
    file.name = line.substr(second + 1);
    return Lines::number(line.substr(0, first), file.bytes) && valid_digest(file.digest) &&
           valid_image_name(file.name);
}

constexpr size_t secret_bytes = 32;  // of a salt and a tag

std::string hex_of(std::string_view bytes) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const char c : bytes) {
        out += digits[static_cast<unsigned char>(c) >> 4];
        out += digits[static_cast<unsigned char>(c) & 15];
    }
    return out;
}

bool parse_hex(std::string_view text, std::string& bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    if (text.size() != 2 * secret_bytes) return false;
    bytes.clear();
    for (size_t i = 0; i < text.size(); i += 2) {
        const size_t high = digits.find(text[i]), low = digits.find(text[i + 1]);
        if (high == std::string_view::npos || low == std::string_view::npos) return false;
        bytes += static_cast<char>(high << 4 | low);
    }
    return true;
}

// "STDOUT STDERR STDIN"
bool parse_ends(std::string_view line, Manifest& m) {
    std::array<uint64_t, 3> ends{};
    for (size_t i = 0; i < ends.size(); ++i) {
        const size_t space = i < 2 ? line.find(' ') : line.size();
        if (space == std::string_view::npos || !Lines::number(line.substr(0, space), ends[i]))
            return false;
        line.remove_prefix(std::min(space + 1, line.size()));
    }
    m.ends = ends;
    return true;
}

bool take_encryption(Lines& lines, Manifest& m) {
    std::string value;
    if (!lines.take("salt", value) || !parse_hex(value, m.salt)) return false;
    return !lines.take("ends", value) || parse_ends(value, m);
}
}  // namespace

tl::unexpected<Error> refuse_image(std::string why) {
    return tl::unexpected(Error{EBADMSG, std::move(why), CauseCode::image_refused});
}

bool image_is_refused(const Error& error) { return error.code == EBADMSG; }

bool valid_image_name(std::string_view name) {
    if (name.empty() || name.size() > 200 || name == "." || name == "..") return false;
    return std::all_of(name.begin(), name.end(),
                       [](char c) { return c > ' ' && c < 127 && c != '/'; });
}

bool is_image_file(std::string_view name) {
    return !name.ends_with(".log") && !name.starts_with("stats-") && name != manifest_name &&
           name != new_manifest_name;
}

bool is_left_over(std::string_view name, const std::vector<ImageFile>& files) {
    return name == frames_file_name &&
           std::ranges::find(files, name, &ImageFile::name) == files.end();
}

std::string encode_manifest(const Manifest& m) {
    const bool has_page_file = std::any_of(m.files.begin(), m.files.end(), [](const ImageFile& f) {
        return f.name == page_file_name;
    });
    const int format = !m.salt.empty() ? 3 : has_page_file ? 2 : 1;
    std::string out = "souk-image " + std::to_string(format) + "\n";
    const auto line = [&out](const char* key, const std::string& value) {
        out += key + (" " + value) + "\n";
    };
    line("job", m.job.text());
    line("epoch", std::to_string(m.epoch.n));
    line("architecture", m.machine.architecture);
    line("kernel", m.machine.kernel);
    line("criu", m.machine.criu);
    line("page-bytes", std::to_string(m.machine.page_bytes));
    for (size_t begin = 0; begin < m.machine.cpu_features.size();) {
        const size_t end =
            std::min(m.machine.cpu_features.find(' ', begin), m.machine.cpu_features.size());
        line("cpu", m.machine.cpu_features.substr(begin, end - begin));
        begin = end + 1;
    }
    if (format == 3) line("salt", hex_of(m.salt));
    if (m.ends)
        line("ends", std::to_string((*m.ends)[0]) + " " + std::to_string((*m.ends)[1]) + " " +
                         std::to_string((*m.ends)[2]));
    line("files", std::to_string(m.files.size()));
    for (const ImageFile& f : m.files)
        line("file", std::to_string(f.bytes) + " " + f.digest + " " + f.name);
    if (!m.tag.empty()) line("tag", hex_of(m.tag));
    line("end", digest_of(out));
    return out;
}

Result<Manifest> decode_manifest(std::string_view text) {
    if (text.size() > manifest_bytes_max) return fail("manifest: too long");
    Lines lines(text);
    Manifest m;
    uint64_t format = 0, files = 0;
    std::string value;
    if (!lines.take("souk-image", format)) return fail("manifest: not an image of a job");
    if (format < 1 || format > Manifest::format)
        return fail("manifest: format " + std::to_string(format) + " is not known here");
    if (!lines.take("job", value)) return fail("manifest: no job");
    TRY_ASSIGN(m.job, parse_job_id(value));
    bool good = lines.take("epoch", m.epoch.n) &&
                lines.take("architecture", m.machine.architecture) &&
                lines.take("kernel", m.machine.kernel) && lines.take("criu", m.machine.criu) &&
                lines.take("page-bytes", m.machine.page_bytes);
    for (std::string before; good && lines.take("cpu", value); before = value) {
        good = before <= value && value.find(' ') == std::string::npos;
        m.machine.cpu_features += (m.machine.cpu_features.empty() ? "" : " ") + value;
    }
    good = good && (format < 3 || take_encryption(lines, m));
    good = good && lines.take("files", files) && files <= image_files_max;
    for (uint64_t i = 0; good && i < files; ++i) {
        ImageFile file;
        good = lines.take("file", value) && parse_file(value, file);
        good = good && (m.files.empty() || m.files.back().name < file.name);
        m.files.push_back(std::move(file));
    }
    good = good && (format < 3 || (lines.take("tag", value) && parse_hex(value, m.tag)));
    if (!good || !lines.take("end", value) || !lines.done())
        return refuse_image("manifest: damaged");
    const size_t end_line = text.rfind("end ", text.size() - 2);
    if (digest_of(text.substr(0, end_line)) != value) return refuse_image("manifest: damaged");
    return m;
}

}  // namespace souk
