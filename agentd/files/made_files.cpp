// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/made_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "agentd/files/fuse_bytes.hpp"

namespace souk::files {
namespace {

// An archiver sets these on a file that it has made.
constexpr uint32_t may_change = FATTR_MODE | FATTR_UID | FATTR_GID | FATTR_ATIME | FATTR_MTIME |
                                FATTR_ATIME_NOW | FATTR_MTIME_NOW;

bool may_be_answered(const fuse_in_header& head, const fuse_setattr_in& in, const fuse_attr& attr) {
    const auto says = [&](uint32_t what) { return (in.valid & what) != 0; };
    return (in.valid & ~may_change) == 0 && head.uid == attr.uid &&
           (!says(FATTR_MODE) || (in.mode & (S_ISUID | S_ISGID | S_ISVTX)) == 0) &&
           (!says(FATTR_UID) || in.uid == attr.uid) && (!says(FATTR_GID) || in.gid == attr.gid);
}

}  // namespace

void MadeFiles::answered(ByteView request, ByteView answer) {
    fuse_in_header head{};
    fuse_create_in in{};
    fuse_out_header said{};
    fuse_entry_out entry{};
    fuse_open_out opened{};
    if (!take(request, head) || head.opcode != FUSE_CREATE || !take(request, in) ||
        !take(answer, said) || said.error != 0 || !take(answer, entry) || !take(answer, opened))
        return;
    files_.erase(entry.nodeid);
    const bool writes = (in.flags & O_ACCMODE) != O_RDONLY;
    if (writes && S_ISREG(entry.attr.mode) && entry.attr.nlink == 1 && files_.size() < files_max)
        files_[entry.nodeid] = {opened.fh, entry.attr};
}

void MadeFiles::asked(ByteView request) {
    fuse_in_header head{};
    if (files_.empty() || !take(request, head)) return;
    switch (head.opcode) {
        case FUSE_WRITE: {
            fuse_write_in in{};
            const auto it = files_.find(head.nodeid);
            if (it == files_.end()) return;
            // (What is appended lies behind what others may have appended.)
            if (!take(request, in) || (in.flags & O_APPEND) != 0) return void(files_.erase(it));
            it->second.attr.size = std::max(it->second.attr.size, in.offset + in.size);
            return;
        }
        case FUSE_FLUSH:  // a close: who changes it later would not hear of an error
        case FUSE_RELEASE: {
            fuse_release_in in{};
            const auto it = files_.find(head.nodeid);
            if (it != files_.end() && take(request, in.fh) && in.fh == it->second.fh)
                files_.erase(it);
            return;
        }
        case FUSE_OPEN: {
            fuse_open_in in{};
            if (!take(request, in) || (in.flags & O_TRUNC) != 0) files_.erase(head.nodeid);
            return;
        }
        case FUSE_COPY_FILE_RANGE:
        case FUSE_UNLINK:
        case FUSE_RENAME:
        case FUSE_RENAME2:
        case FUSE_LINK: return files_.clear();
        case FUSE_SETATTR:
        case FUSE_FALLOCATE:
        case FUSE_SETXATTR:
        case FUSE_REMOVEXATTR:
        case FUSE_FORGET: files_.erase(head.nodeid); return;
        case FUSE_BATCH_FORGET: return files_.clear();
        default: return;
    }
}

Bytes MadeFiles::answer(ByteView request, int64_t now_s, uint64_t& fh) {
    fuse_in_header head{};
    fuse_setattr_in in{};
    if (files_.empty() || !take(request, head) || head.opcode != FUSE_SETATTR || !take(request, in))
        return {};
    const auto it = files_.find(head.nodeid);
    if (it == files_.end() || !may_be_answered(head, in, it->second.attr)) return {};
    fuse_attr& attr = it->second.attr;
    if ((in.valid & FATTR_MODE) != 0) attr.mode = (attr.mode & S_IFMT) | (in.mode & 0777);
    if ((in.valid & FATTR_ATIME) != 0) attr.atime = in.atime, attr.atimensec = in.atimensec;
    if ((in.valid & FATTR_MTIME) != 0) attr.mtime = in.mtime, attr.mtimensec = in.mtimensec;
    attr.ctime = static_cast<uint64_t>(now_s);
    attr.blocks = (attr.size + 511) / 512;
    struct {
        fuse_out_header head;
        fuse_attr_out attr;
    } answer{{sizeof answer, 0, head.unique}, {0, 0, 0, attr}};
    fh = it->second.fh;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&answer);
    return Bytes(bytes, bytes + sizeof answer);
}

}  // namespace souk::files
