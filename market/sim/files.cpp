// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>

namespace souk::sim {
namespace {

constexpr size_t piece_bytes = 256 * 1024;
constexpr size_t text_max = 256 * 1024 * 1024;

struct File {
    explicit File(int descriptor) : fd(descriptor) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (fd >= 0) ::close(fd);
    }
    int fd;
};

struct Inflater {
    z_stream z{};
    bool open = false;
    // 16: a gzip header and trailer
    Inflater() { open = inflateInit2(&z, 16 + MAX_WBITS) == Z_OK; }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;
    ~Inflater() {
        if (open) inflateEnd(&z);
    }
};

using Sink = std::function<Status(std::string_view)>;

Result<size_t> read_piece(int fd, char* to) {
    for (;;) {
        const ssize_t n = ::read(fd, to, piece_bytes);
        if (n >= 0) return static_cast<size_t>(n);
        if (errno != EINTR) return fail_errno("read", errno);
    }
}

// `in` holds the first n bytes already. Members may follow one another, as gzip(1) allows.
Status inflate_all(int fd, char* in, size_t n, const Sink& sink) {
    const auto out = std::make_unique_for_overwrite<char[]>(piece_bytes);
    Inflater inflater;
    if (!inflater.open) return fail("no memory for the gzip decoder");
    z_stream& z = inflater.z;
    bool member_open = true;
    uint64_t total = 0;
    while (n > 0) {
        z.next_in = reinterpret_cast<Bytef*>(in);
        z.avail_in = static_cast<uInt>(n);
        while (z.avail_in > 0 || z.avail_out == 0) {
            if (!member_open) {
                if (inflateReset(&z) != Z_OK) return fail("the gzip decoder cannot go on");
                member_open = true;
            }
            z.next_out = reinterpret_cast<Bytef*>(out.get());
            z.avail_out = piece_bytes;
            const int rc = inflate(&z, Z_NO_FLUSH);
            const size_t got = piece_bytes - z.avail_out;
            total += got;
            if (got > 0) TRY(sink({out.get(), got}));
            if (rc == Z_STREAM_END) {
                member_open = false;
                if (z.avail_in == 0) break;
            } else if (rc == Z_BUF_ERROR) {
                break;  // wants more input
            } else if (rc != Z_OK) {
                return fail("damaged gzip stream after " + std::to_string(total) +
                            " bytes of text" + (z.msg ? std::string(": ") + z.msg : std::string()));
            }
        }
        TRY_ASSIGN(n, read_piece(fd, in));
    }
    if (member_open)
        return fail("truncated gzip stream: ends after " + std::to_string(total) +
                    " bytes of text");
    return {};
}

Status stream(const std::string& path, const Sink& sink) {
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0) return fail_errno("open", errno);
    const auto piece = std::make_unique_for_overwrite<char[]>(piece_bytes);
    TRY_ASSIGN(size_t n, read_piece(file.fd, piece.get()));
    if (n >= 2 && piece[0] == '\x1f' && piece[1] == '\x8b')
        return inflate_all(file.fd, piece.get(), n, sink);
    while (n > 0) {
        TRY(sink({piece.get(), n}));
        TRY_ASSIGN(n, read_piece(file.fd, piece.get()));
    }
    return {};
}

Status write_all(int fd, std::string_view content) {
    while (!content.empty()) {
        const ssize_t n = ::write(fd, content.data(), content.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("write", errno);
        content.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

}  // namespace

Result<SwfTrace> read_swf(const std::string& path) {
    SwfParser parser;
    if (Status read = stream(path, [&](std::string_view piece) { return parser.feed(piece); });
        !read)
        return wrap(path, std::move(read).error());
    Result<SwfTrace> trace = parser.finish();
    if (!trace) return wrap(path, std::move(trace).error());
    return trace;
}

Result<std::string> read_text(const std::string& path) {
    std::string text;
    const Status read = stream(path, [&](std::string_view piece) -> Status {
        if (text.size() + piece.size() > text_max) return fail("larger than 256 MiB");
        text += piece;
        return {};
    });
    if (!read) return wrap(path, read.error());
    return text;
}

namespace {

// The one name of a file: absolute, without links, whether it exists or not.
std::string place_of(const std::string& path) {
    std::error_code failed;
    const std::filesystem::path place = std::filesystem::weakly_canonical(path, failed);
    if (failed) return path;
    std::filesystem::path whole = std::filesystem::absolute(place, failed);
    return failed ? path : whole.string();
}

constexpr int names_max = 1'000;

// Tries name after name while there is a file of that name (of a process that was killed, or of
// another machine).
Status with_unused_name(const std::string& place, std::string& name,
                        const std::function<bool(const char*)>& make) {
    for (int n = 0; n < names_max; ++n) {
        name = place + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(n);
        if (make(name.c_str())) return {};
        if (errno != EEXIST) break;
    }
    const int code = errno;
    name.clear();
    return fail_errno("create", code);
}

}  // namespace

OutputFiles::~OutputFiles() {
    for (const Pending& file : pending_) {
        if (file.fd >= 0) ::close(file.fd);
        if (!file.temporary.empty()) ::unlink(file.temporary.c_str());
    }
}

void OutputFiles::spare(const std::string& path) { spared_.push_back(place_of(path)); }

Status OutputFiles::add(const std::string& path, std::string_view content) {
    struct stat there {};
    const bool exists = ::stat(path.c_str(), &there) == 0;
    if (exists && S_ISDIR(there.st_mode)) return fail(path + ": is a directory");
    if (exists && !S_ISREG(there.st_mode)) {
        pending_.push_back({path, "", -1, std::string(content), false});
        return {};
    }
    Pending file{place_of(path), "", -1, "", true};
    if (std::find(spared_.begin(), spared_.end(), file.place) != spared_.end())
        return fail(path + ": is an input, and would be overwritten");
    for (const Pending& other : pending_)
        if (other.place == file.place) return fail(path + ": is named for two outputs");
    const std::string directory = std::filesystem::path(file.place).parent_path().string();
    // A file without a name gets one through /proc.
    if (::access("/proc/self/fd", X_OK) == 0)
        file.fd = ::open(directory.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (file.fd < 0) {
        const Status made = with_unused_name(file.place, file.temporary, [&](const char* name) {
            return (file.fd = ::open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) >= 0;
        });
        if (!made) return wrap(path, made.error());
    }
    pending_.push_back(file);
    if (Status written = write_all(file.fd, content); !written)
        return wrap(path, std::move(written).error());
    return {};
}

Status OutputFiles::give_name(Pending& file) {
    if (file.temporary.empty()) {
        const std::string nameless = "/proc/self/fd/" + std::to_string(file.fd);
        TRY(with_unused_name(file.place, file.temporary, [&](const char* name) {
            return ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        }));
    }
    if (std::rename(file.temporary.c_str(), file.place.c_str()) != 0)
        return fail_errno("rename", errno);
    file.temporary.clear();
    return {};
}

Status OutputFiles::commit() {
    while (!pending_.empty()) {
        Pending& file = pending_.back();
        if (file.regular) {
            if (Status named = give_name(file); !named)
                return wrap(file.place, std::move(named).error());
            ::close(file.fd);
        } else {
            const File out(::open(file.place.c_str(), O_WRONLY | O_CLOEXEC));
            if (out.fd < 0) return wrap(file.place, fail_errno("open", errno).value());
            if (Status written = write_all(out.fd, file.content); !written)
                return wrap(file.place, std::move(written).error());
        }
        pending_.pop_back();
    }
    return {};
}

}  // namespace souk::sim
