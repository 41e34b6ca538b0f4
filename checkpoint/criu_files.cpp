// SPDX-License-Identifier: GPL-2.0-or-later
// What we read and change in CRIU's own files.
#include <cerrno>
#include <cstring>

#include "checkpoint/criu.hpp"

namespace souk {
namespace {
// The wire format of protocol buffers, as far as these two messages need it.
class Fields {
  public:
    Fields(std::string_view bytes, size_t base) : bytes_(bytes), base_(base) {}
    bool next() {
        if (at_ >= bytes_.size()) return false;
        uint64_t tag;
        if (!varint(tag)) return false;
        number = static_cast<uint32_t>(tag >> 3);
        switch (tag & 7) {
            case 0: value_at = base_ + at_; return varint(value);
            case 1: return skip(8);
            case 2: {
                uint64_t length;
                if (!varint(length) || length > bytes_.size() - at_) return good = false;
                inner = bytes_.substr(at_, length);
                inner_at = base_ + at_;
                at_ += length;
                value = 0;
                return true;
            }
            case 5: return skip(4);
        }
        return good = false;
    }

    bool good = true;
    uint32_t number = 0;
    uint64_t value = 0;
    size_t value_at = 0, inner_at = 0;
    std::string_view inner;

  private:
    bool varint(uint64_t& v) {
        v = 0;
        for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
            const auto byte = static_cast<uint8_t>(bytes_[at_++]);
            v |= uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) return true;
        }
        return good = false;
    }
    bool skip(size_t n) {
        if (n > bytes_.size() - at_) return good = false;
        at_ += n;
        return true;
    }

    std::string_view bytes_;
    size_t base_, at_ = 0;
};

// Where the nanoseconds of an expired periodic timer lie; 0 if it is none. False if the entry is damaged.
bool expired_timer(std::string_view entry, size_t base, size_t& where) {
    enum { vsec = 7, vnsec = 8, isec = 9, insec = 10 };
    uint64_t values[11] = {};
    size_t at = 0;
    Fields f(entry, base);
    while (f.next()) {
        if (f.number < 11) values[f.number] = f.value;
        if (f.number == vnsec) at = f.value_at;
    }
    where = values[vsec] == 0 && values[vnsec] == 0 && (values[isec] != 0 || values[insec] != 0) ? at : 0;
    return f.good;
}

uint32_t u32_at(std::string_view bytes, size_t at) {
    uint32_t v;
    std::memcpy(&v, bytes.data() + at, sizeof v);
    return v;
}
}  // namespace

Result<std::vector<size_t>> expired_timerfds(std::string_view image) {
    constexpr uint32_t common_magic = 0x54564319, files_magic = 0x56303138;
    constexpr uint32_t timerfd_field = 12;
    std::vector<size_t> found;
    if (image.size() < 8 || u32_at(image, 0) != common_magic || u32_at(image, 4) != files_magic)
        return fail("files.img: not an image that CRIU wrote");
    for (size_t at = 8; at < image.size();) {
        if (image.size() - at < 4) return fail("files.img: cut short");
        const uint32_t length = u32_at(image, at);
        at += 4;
        if (length > image.size() - at) return fail("files.img: cut short");
        Fields f(image.substr(at, length), at);
        size_t where = 0;
        while (f.next())
            if (f.number == timerfd_field) {
                if (!expired_timer(f.inner, f.inner_at, where)) return fail("files.img: a damaged timerfd");
                if (where > 0) found.push_back(where);
            }
        if (!f.good) return fail("files.img: a damaged entry");
        at += length;
    }
    return found;
}

Result<int> arm_expired_timerfds(int images) {
    const auto image = read_file(images, "files.img", 256 << 20);
    if (!image && image.error().code == ENOENT) return 0;
    if (!image) return wrap("read CRIU's image", image.error());
    TRY_ASSIGN(const std::vector<size_t> places, expired_timerfds(*image));
    if (places.empty()) return 0;
    TRY_ASSIGN(const Fd file, open_at(images, "files.img", O_WRONLY));
    for (const size_t place : places)
        if (::pwrite(file.get(), "\x01", 1, static_cast<off_t>(place)) != 1) return fail_errno("change files.img", errno);
    return static_cast<int>(places.size());
}

std::string criu_error_lines(std::string_view log, size_t lines_max) {
    constexpr size_t line_bytes_max = 200;
    std::string out;
    for (size_t at = 0, lines = 0; at < log.size() && lines < lines_max;) {
        const size_t end = std::min(log.find('\n', at), log.size());
        std::string_view line = log.substr(at, end - at);
        at = end + 1;
        const size_t error = line.find("Error ");
        // CRIU wants more open files than it may have where CAP_SYS_RESOURCE is missing, says so, and works.
        if (error == std::string_view::npos || line.find("setup RLIMIT_NOFILE") != std::string_view::npos) continue;
        std::string said(line.substr(error, line_bytes_max));
        for (char& c : said) c = static_cast<unsigned char>(c) < ' ' ? ' ' : c;
        if (out.find(said) != std::string::npos) continue;
        out += (out.empty() ? "" : "; ") + said;
        ++lines;
    }
    return out;
}

}  // namespace souk
