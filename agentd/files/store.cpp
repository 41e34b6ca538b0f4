// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/store.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kernel/sys/net/descriptors.hpp"

namespace souk::files {
namespace {

constexpr size_t store_slice_bytes = 1 << 20;
constexpr int asks_at_once = 64;

std::optional<Sha256::Digest> digest_of(const std::string& name) {
    Sha256::Digest digest;
    if (name.size() != 2 * digest.size()) return std::nullopt;
    for (size_t i = 0; i < digest.size(); ++i) {
        const auto half = [&](char c) {
            return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        };
        const int high = half(name[2 * i]), low = half(name[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        digest[i] = static_cast<uint8_t>(high << 4 | low);
    }
    return digest;
}

// A plain file of one name, which nobody else can write to.
bool is_own(const struct stat& st) {
    return S_ISREG(st.st_mode) && st.st_uid == ::geteuid() && st.st_nlink == 1 &&
           (st.st_mode & 0377) == 0;
}

void warn(const std::string& what) { std::fprintf(stderr, "souk-files: %s\n", what.c_str()); }

}  // namespace

// ---- what lies on the disk

Result<Store> Store::open(Fd directory, uint64_t bytes_max) {
    struct stat st {};
    if (::fstat(directory.get(), &st) != 0) return fail_errno("the store of contents", errno);
    if (!S_ISDIR(st.st_mode) || st.st_uid != ::geteuid() || (st.st_mode & 077) != 0)
        return fail("the store of contents: its directory must be its user's alone (chmod 700)");
    Store store(std::move(directory), bytes_max);
    store.load();
    return store;
}

void Store::load() {
    const auto names = list_dir(directory_.get(), ".");
    if (!names) return;
    std::vector<std::pair<int64_t, std::pair<Digest, uint64_t>>> all;
    for (const std::string& name : *names) {
        struct stat st {};
        const auto digest = digest_of(name);
        const bool there = ::fstatat(directory_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (digest && there && is_own(st)) {
            all.push_back({st.st_mtim.tv_sec, {*digest, static_cast<uint64_t>(st.st_size)}});
            continue;
        }
        // A put that did not end, or something that others have left here.
        if (!name.starts_with("new-")) warn("removed from the store of contents: " + name);
        (void)::unlinkat(directory_.get(), name.c_str(), 0);
    }
    std::ranges::sort(all, {}, [](const auto& one) { return one.first; });
    for (const auto& [when, entry] : all) add(entry.first, entry.second);
    (void)make_room(0);
}

void Store::add(const Digest& digest, uint64_t size) {
    if (entries_.contains(digest)) return;
    used_.push_back(digest);
    entries_[digest] = {size, std::prev(used_.end())};
    bytes_ += size;
}

void Store::remove(const Digest& digest) {
    (void)::unlinkat(directory_.get(), hex_of(digest).c_str(), 0);
    const auto it = entries_.find(digest);
    if (it == entries_.end()) return;
    bytes_ -= it->second.size;
    used_.erase(it->second.used);
    entries_.erase(it);
}

// A twentieth of the disk is left to others.
bool Store::disk_has(uint64_t bytes) const {
    struct statvfs fs {};
    if (::fstatvfs(directory_.get(), &fs) != 0) return false;
    return (fs.f_bavail - std::min(fs.f_bavail, fs.f_blocks / 20)) * fs.f_frsize > bytes;
}

// Were it empty.
bool Store::disk_takes(uint64_t bytes) const {
    struct statvfs fs {};
    return ::fstatvfs(directory_.get(), &fs) == 0 &&
           (fs.f_blocks - fs.f_blocks / 20) * fs.f_frsize > bytes;
}

bool Store::make_room(uint64_t bytes) {
    if (bytes > bytes_max_ || !disk_takes(bytes)) return false;
    // A content that a job has open takes room until the job closes it, so its removal may be in
    // vain. A bound on such removals keeps the rest.
    int vain = 16;
    while (!used_.empty() && (bytes_ + bytes > bytes_max_ || (!disk_has(bytes) && vain-- > 0))) {
        const Digest oldest = used_.front();
        remove(oldest);
    }
    return bytes_ + bytes <= bytes_max_ && disk_has(bytes);
}

// Opens a content; removes it if it is not as the store has left it.
Fd Store::open_entry(const Digest& digest) {
    const auto it = entries_.find(digest);
    if (it == entries_.end()) return Fd();
    Fd file(::openat(directory_.get(), hex_of(digest).c_str(),
                     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat st {};
    if (file && ::fstat(file.get(), &st) == 0 && is_own(st) &&
        static_cast<uint64_t>(st.st_size) == it->second.size)
        return file;
    warn("a content was removed that is not as it was left: " + hex_of(digest));
    remove(digest);
    return Fd();
}

// ---- clients

void Store::say(Client& c, StoreSays::Kind kind, uint64_t number, int file) {
    StoreSays says;
    says.kind = kind;
    says.number = number;
    if (kind == StoreSays::begin) says.prove = c.prove;
    const std::string_view bytes(reinterpret_cast<const char*>(&says), sizeof says);
    const auto sent =
        send_descriptors(c.socket.get(), bytes, {&file, file >= 0 ? size_t{1} : size_t{0}});
    if (!sent || !*sent) c.gone = true;  // it does not listen
}

void Store::hear_control(int control, bool& ended) {
    char word;
    auto received = receive_descriptors(control, {&word, 1});
    if (received && !*received) return;
    if (!received || (*received)->bytes == 0) {
        ended = true;
        return;
    }
    if ((*received)->descriptors.empty() || clients_.size() >= clients_max) return;
    Client& c = clients_.emplace_back();
    c.socket = std::move((*received)->descriptors[0]);
    if (::getrandom(&c.prove, sizeof c.prove, 0) != sizeof c.prove) c.gone = true;
    if (!c.gone) say(c, StoreSays::begin);
}

void Store::hear(Client& c) {
    for (int turn = 0; turn < asks_at_once && !c.gone; ++turn) {
        StoreAsk ask;
        auto received =
            receive_descriptors(c.socket.get(), {reinterpret_cast<char*>(&ask), sizeof ask});
        if (received && !*received) return;
        if (!received || (*received)->bytes != sizeof ask || (*received)->truncated) {
            c.gone = true;
            return;
        }
        take(c, ask, std::move((*received)->descriptors));
    }
}

void Store::take(Client& c, const StoreAsk& ask, std::vector<Fd> fds) {
    switch (ask.kind) {
        case StoreAsk::memory:
            // The client must give a memory file, because another kind of file could let its reader
            // wait.
            c.gone = c.memory || fds.size() != 1 || ::fcntl(fds[0].get(), F_GET_SEALS) < 0;
            if (!c.gone) c.memory = std::move(fds[0]);
            return;
        case StoreAsk::find:
            c.gone = c.finds.size() >= finds_max;
            if (!c.gone) c.finds.push_back(ask);
            return;
        case StoreAsk::put: return begin_put(c, ask.id);
        case StoreAsk::part: return take_part(c, ask.bytes);
        case StoreAsk::cancel: return drop_put(c);
        default: c.gone = true;
    }
}

// ---- who has a proof is given

// One slice for each client that waits. True: there is more.
bool Store::work() {
    bool more = false;
    for (Client& c : clients_) {
        if (c.gone || c.finds.empty()) continue;
        work_on(c);
        more = more || !c.finds.empty();
    }
    return more;
}

void Store::work_on(Client& c) {
    static Bytes buffer(store_slice_bytes);
    const StoreAsk& ask = c.finds.front();
    const auto ends = [&c](StoreSays::Kind kind, int file = -1) {
        say(c, kind, c.finds.front().number, file);
        c.find.reset();
        c.finds.pop_front();
    };
    if (!c.find) {
        Fd file = open_entry(ask.id.digest);
        if (!file) return ends(StoreSays::missing);
        c.find.emplace(Find{ask, std::move(file), ContentHash(c.prove)});
    }
    const ssize_t got = ::pread(c.find->file.get(), buffer.data(), buffer.size(),
                                static_cast<off_t>(c.find->hash.size()));
    if (got > 0) c.find->hash.update({buffer.data(), static_cast<size_t>(got)});
    if (got > 0 && c.find->hash.size() < ask.id.size) return;
    const ContentId is = c.find->hash.finish();
    if (is.digest != ask.id.digest) {
        warn("a content was removed that is not what it was: " + hex_of(ask.id.digest));
        remove(ask.id.digest);
        return ends(StoreSays::missing);
    }
    // The digest alone is no right.
    if (is != ask.id) return ends(StoreSays::missing);
    if (const auto it = entries_.find(ask.id.digest); it != entries_.end())
        used_.splice(used_.end(), used_, it->second.used);
    const timespec now[2] = {{0, UTIME_NOW}, {0, UTIME_NOW}};
    (void)::futimens(c.find->file.get(), now);
    ends(StoreSays::found, c.find->file.get());
}

// ---- what clients bring

void Store::drop_put(Client& c) {
    if (!c.put) return;
    (void)::unlinkat(directory_.get(), c.put->name.c_str(), 0);
    bytes_ -= c.put->id.size;
    c.put.reset();
}

// Begins a put. The content's bytes count from now on.
void Store::begin_put(Client& c, const ContentId& id) {
    drop_put(c);
    if (!c.memory || id.size == 0 || id.size > content_bytes_max || entries_.contains(id.digest) ||
        !make_room(id.size))
        return say(c, StoreSays::refused);
    Put put;
    put.id = id;
    put.name = "new-" + std::to_string(::getpid()) + "-" + std::to_string(++puts_);
    put.file = Fd(::openat(directory_.get(), put.name.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400));
    if (!put.file) return say(c, StoreSays::refused);
    c.put = std::move(put);
    bytes_ += id.size;
    say(c, StoreSays::more);
}

void Store::take_part(Client& c, uint32_t bytes) {
    static Bytes buffer(store_part_bytes);
    if (!c.put || bytes == 0 || bytes > buffer.size() || c.put->bytes + bytes > c.put->id.size) {
        c.gone = true;
        return;
    }
    // We hash the bytes that we write, because the client may change its memory meanwhile.
    const bool taken = ::pread(c.memory.get(), buffer.data(), bytes, 0) == bytes &&
                       ::write(c.put->file.get(), buffer.data(), bytes) == bytes;
    if (!taken) {  // a full disk
        drop_put(c);
        return say(c, StoreSays::refused);
    }
    c.put->hash.update({buffer.data(), bytes});
    c.put->bytes += bytes;
    if (c.put->bytes < c.put->id.size) return say(c, StoreSays::more);
    end_put(c);
}

void Store::end_put(Client& c) {
    const Digest digest = c.put->hash.finish();
    const bool right = digest == c.put->id.digest && !entries_.contains(digest) &&
                       ::renameat(directory_.get(), c.put->name.c_str(), directory_.get(),
                                  hex_of(digest).c_str()) == 0;
    const uint64_t size = c.put->id.size;
    drop_put(c);
    if (right) add(digest, size);
    say(c, right ? StoreSays::kept : StoreSays::refused);
}

Status Store::run(int control) {
    bool ended = false, more = false;
    while (!ended) {
        std::vector<pollfd> ready = {{control, POLLIN, 0}};
        for (const Client& c : clients_) ready.push_back({c.socket.get(), POLLIN, 0});
        if (::poll(ready.data(), ready.size(), more ? 0 : -1) < 0 && errno != EINTR)
            return fail_errno("poll", errno);
        size_t n = 1;
        for (Client& c : clients_)
            if (ready[n++].revents != 0) hear(c);
        if (ready[0].revents != 0) hear_control(control, ended);
        more = work();
        for (Client& c : clients_)
            if (c.gone) drop_put(c);
        clients_.remove_if([](const Client& c) { return c.gone; });
    }
    return {};
}

}  // namespace souk::files
