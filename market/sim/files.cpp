// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
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
    ~File() { if (fd >= 0) ::close(fd); }
    int fd;
};

struct Inflater {
    z_stream z{};
    bool open = false;
    Inflater() { open = inflateInit2(&z, 16 + MAX_WBITS) == Z_OK; }  // 16: a gzip header and trailer
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;
    ~Inflater() { if (open) inflateEnd(&z); }
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
                return fail("damaged gzip stream after " + std::to_string(total) + " bytes of text" +
                            (z.msg ? std::string(": ") + z.msg : std::string()));
            }
        }
        TRY_ASSIGN(n, read_piece(fd, in));
    }
    if (member_open) return fail("truncated gzip stream: ends after " + std::to_string(total) + " bytes of text");
    return {};
}

Status stream(const std::string& path, const Sink& sink) {
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.fd < 0) return fail_errno("open", errno);
    const auto piece = std::make_unique_for_overwrite<char[]>(piece_bytes);
    TRY_ASSIGN(size_t n, read_piece(file.fd, piece.get()));
    if (n >= 2 && piece[0] == '\x1f' && piece[1] == '\x8b') return inflate_all(file.fd, piece.get(), n, sink);
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
    if (Status read = stream(path, [&](std::string_view piece) { return parser.feed(piece); }); !read)
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

OutputFiles::~OutputFiles() {
    for (const Pending& file : pending_)
        if (!file.temporary.empty()) ::unlink(file.temporary.c_str());
}

Status OutputFiles::add(const std::string& path, std::string_view content) {
    struct stat there {};
    std::string place = path;
    if (::stat(path.c_str(), &there) == 0) {
        if (S_ISDIR(there.st_mode)) return fail(path + ": is a directory");
        if (!S_ISREG(there.st_mode)) {
            pending_.push_back({"", path, std::string(content)});
            return {};
        }
        if (char* const real = ::realpath(path.c_str(), nullptr)) {
            place = real;
            ::free(real);
        }
    }
    Pending file{place + ".tmp." + std::to_string(::getpid()), place, ""};
    const File out(::open(file.temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (out.fd < 0) return wrap(path, fail_errno("create", errno).value());
    pending_.push_back(std::move(file));
    if (Status written = write_all(out.fd, content); !written) return wrap(path, std::move(written).error());
    return {};
}

Status OutputFiles::commit() {
    while (!pending_.empty()) {
        const Pending& file = pending_.back();
        if (!file.temporary.empty()) {
            if (std::rename(file.temporary.c_str(), file.path.c_str()) != 0)
                return wrap(file.path, fail_errno("rename", errno).value());
        } else {
            const File out(::open(file.path.c_str(), O_WRONLY | O_CLOEXEC));
            if (out.fd < 0) return wrap(file.path, fail_errno("open", errno).value());
            if (Status written = write_all(out.fd, file.content); !written)
                return wrap(file.path, std::move(written).error());
        }
        pending_.pop_back();
    }
    return {};
}

}  // namespace souk::sim
