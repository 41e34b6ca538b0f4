// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/session_parts.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace souk::files {

bool Words::text(const char*& text, size_t bytes_max) {
    const void* zero = left_.empty() ? nullptr : std::memchr(left_.data(), 0, left_.size());
    if (!zero) return bad();
    text = reinterpret_cast<const char*>(left_.data());
    const auto length = static_cast<size_t>(static_cast<const uint8_t*>(zero) - left_.data());
    if (length == 0 || length > bytes_max) return bad();
    left_ = left_.subspan(length + 1);
    return true;
}

bool Words::name(const char*& text) {
    const void* const zero =
        left_.size() > name_bytes_max ? std::memchr(left_.data(), 0, left_.size()) : nullptr;
    long_ = long_ || (zero && static_cast<const uint8_t*>(zero) - left_.data() > name_bytes_max);
    if (!this->text(text, name_bytes_max)) return false;
    if (std::strchr(text, '/') || std::strcmp(text, ".") == 0 || std::strcmp(text, "..") == 0)
        return bad();
    return true;
}

bool Words::bytes(ByteView& data, size_t size) {
    if (left_.size() < size) return bad();
    data = left_.first(size);
    left_ = left_.subspan(size);
    return true;
}

Handles::Handle* Handles::find(uint64_t number, bool directory) {
    const auto it = handles_.find(number);
    if (it == handles_.end() || it->second.directory != directory) return nullptr;
    it->second.unused_moves = 0;
    return &it->second;
}

int Handles::fd_of(uint64_t number) const {
    const auto it = handles_.find(number);
    return it == handles_.end() ? -1 : it->second.fd.get();
}

Done Handles::put(Handle handle, uint32_t flags, Bytes& out) {
    if (handles_.size() >= open_max_) return -ENFILE;
    fuse_open_out opened{};
    opened.fh = next_++;
    opened.open_flags = flags | (handle.directory ? 0U : FOPEN_NOFLUSH);
    files::put(out, opened);
    handles_.emplace(opened.fh, std::move(handle));
    return 0;
}

void Handles::note_ahead(ByteView answer, unsigned unused_moves) {
    fuse_open_out opened{};
    if (answer.size() != sizeof(fuse_out_header) + sizeof opened) return;
    std::memcpy(&opened, answer.data() + sizeof(fuse_out_header), sizeof opened);
    if (Handle* const h = find(opened.fh, false)) h->unused_moves = unused_moves;
}

bool Leases::is_watched(uint64_t directory) {
    const Node* node = nodes_.find(directory);
    if (!node || node->sealed || node->kind != S_IFDIR) return false;
    const int fd = nodes_.fd_of(directory);
    return fd >= 0 && watches_.watch(directory, fd);
}

Lease Leases::kind_of(uint64_t id) {
    const Node* node = nodes_.find(id);
    return node && node->quiet ? Lease::program : Lease::file;
}

// A file is watched by its directory. A directory must also be watched itself, because its contents
// change its attributes.
bool Leases::is_watched_file(uint64_t id) {
    const Node* node = nodes_.find(id);
    if (!node || node->name.empty() || !is_watched(node->parent)) return false;
    return node->kind != S_IFDIR || is_watched(id);
}

int open_node(Nodes& nodes, int proc, uint64_t id, int flags, Fd& fd) {
    const int held = nodes.fd_of(id);
    if (held < 0) return held;
    const uint32_t kind = nodes.find(id)->kind;
    if (kind == S_IFLNK) return -ELOOP;
    if (kind != S_IFREG && kind != S_IFDIR) return -EACCES;
    char path[16];
    std::snprintf(path, sizeof path, "%d", held);
    fd = Fd(::openat(proc, path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    return fd ? 0 : -errno;
}

}  // namespace souk::files
