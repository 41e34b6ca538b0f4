// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/session.hpp"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "agentd/files/fsetid.hpp"
#include "agentd/files/own_requests.hpp"

namespace souk::files {
namespace {

// Acts for a caller of another user in a job of root's. What the caller makes is then its user's,
// and a program that it writes to loses its set-user-ID bit. The kernel where the caller runs has
// checked what it may do (the tree is mounted with default_permissions), so root's other rights
// stay.
class AsCaller {
  public:
    AsCaller(const fuse_in_header& head, bool is_root) : acts_(is_root && counts(head)) {
        if (!acts_) return;
        (void)::setfsgid(head.gid);
        (void)::setfsuid(head.uid);
        use_fsetid(false);
    }
    AsCaller(const AsCaller&) = delete;
    AsCaller& operator=(const AsCaller&) = delete;
    ~AsCaller() {
        if (!acts_) return;
        (void)::setfsuid(0);
        (void)::setfsgid(0);
        use_fsetid(true);
    }

  private:
    static bool counts(const fuse_in_header& head) {
        if (head.uid == 0 && head.gid == 0) return false;
        switch (head.opcode) {
            case FUSE_SYMLINK:
            case FUSE_MKNOD:
            case FUSE_MKDIR:
            case FUSE_CREATE:
            case FUSE_TMPFILE:
            case FUSE_OPEN:
            case FUSE_WRITE:
            case FUSE_FALLOCATE:
            case FUSE_SETXATTR:
            case FUSE_COPY_FILE_RANGE: return true;
            default: return false;
        }
    }
    const bool acts_;
};

// Tells whether the file is a program, or something that programs load, which seldom changes. It
// must have one name only, by which it is watched.
bool is_program(const Node& node, const struct stat& st) {
    if (st.st_nlink != 1) return false;
    const std::string& name = node.name;
    constexpr const char* ends[] = {".so", ".pyc", ".py", ".jar"};
    return node.quiet || (st.st_mode & 0111) != 0 || name.find(".so.") != std::string::npos ||
           std::ranges::any_of(ends, [&](const char* end) { return name.ends_with(end); });
}

constexpr size_t opens_max = 1024;
constexpr unsigned move_depth_max = 64;
// An open file that nobody has used for so many moves is not opened ahead once more: if the job
// still has it, its client asks. Otherwise files that a job had open for a moment would be opened
// with each move.
constexpr unsigned unused_moves_max = 3;

// Returns the nodes from the top down; empty if the way cannot be told.
std::vector<uint64_t> way_to(uint64_t id, Nodes& nodes) {
    std::vector<uint64_t> way;
    for (; id != FUSE_ROOT_ID; id = nodes.find(id)->parent) {
        if (way.size() >= move_depth_max || !nodes.find(id) || nodes.find(id)->name.empty())
            return {};
        way.push_back(id);
    }
    std::ranges::reverse(way);
    return way;
}

}  // namespace

Session::Session(const Export& tree, const SessionLimits& limits, Watches* watches, uint64_t number,
                 Locks* locks)
    : tree_(tree),
      proc_(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC)),
      nodes_(tree, limits.fds_max, limits.nodes_max),
      handles_(limits.open_max),
      leases_(nodes_, watches, number),
      attributes_(tree, limits.trusted_s, proc_.get(), nodes_, handles_, leases_),
      names_(proc_.get(), nodes_, handles_, leases_, attributes_),
      data_(nodes_, handles_),
      locks_(locks, number, nodes_, handles_) {}

void Session::handle(ByteView request, Bytes& out, uint64_t seq) {
    fuse_in_header head{};
    Words words(request);
    fuse_out_header answer{};
    const size_t at = out.size();
    int error = -EINVAL;
    if (words.take(head) && head.len == request.size()) {
        put(out, answer);
        leases_.grant(Lease::none);
        opened_changed_ = false;
        locks_.begin(seq);
        error = run(head, words, out);
        if (error == -EINVAL && words.is_long()) error = -ENAMETOOLONG;
        if (head.opcode == FUSE_FORGET || head.opcode == FUSE_BATCH_FORGET ||
            head.opcode == FUSE_INTERRUPT || head.opcode == FUSE_DESTROY || locks_.waits())
            return out.resize(at);
    } else {
        put(out, answer);
    }
    if (error != 0) out.resize(at + sizeof answer);
    answer.len = static_cast<uint32_t>(out.size() - at);
    answer.error = error;
    answer.unique = head.unique;
    std::memcpy(out.data() + at, &answer, sizeof answer);
}

Done Session::run(const fuse_in_header& head, Words& words, Bytes& out) {
    const AsCaller caller(head, tree_.uid == 0 && attributes_.shown_uid() == 0);
    switch (head.opcode) {
        case FUSE_FORGET: {
            fuse_forget_in in{};
            if (!words.take(in)) return -EINVAL;
            nodes_.forget(head.nodeid, in.nlookup);
            return 0;
        }
        case FUSE_BATCH_FORGET: {
            fuse_batch_forget_in in{};
            if (!words.take(in)) return -EINVAL;
            fuse_forget_one one{};
            for (uint32_t i = 0; i < in.count && words.take(one); ++i)
                nodes_.forget(one.nodeid, one.nlookup);
            return 0;
        }
        case FUSE_LOOKUP:
        case FUSE_READLINK:
        case FUSE_SYMLINK:
        case FUSE_MKNOD:
        case FUSE_MKDIR:
        case FUSE_UNLINK:
        case FUSE_RMDIR:
        case FUSE_RENAME:
        case FUSE_RENAME2:
        case FUSE_LINK:
        case FUSE_CREATE:
        case FUSE_TMPFILE:
        case FUSE_READDIR:
        case FUSE_READDIRPLUS: return names_.run(head, words, out);
        case FUSE_OPEN:
        case FUSE_OPENDIR: return open(head, words, out);
        case FUSE_READ:
        case FUSE_WRITE:
        case FUSE_FSYNC:
        case FUSE_FSYNCDIR:
        case FUSE_SYNCFS:
        case FUSE_FALLOCATE:
        case FUSE_LSEEK:
        case FUSE_COPY_FILE_RANGE: return data_.run(head, words, out);
        case FUSE_FLUSH:
        case FUSE_RELEASE:
        case FUSE_RELEASEDIR:
        case FUSE_GETLK:
        case FUSE_SETLK:
        case FUSE_SETLKW:
        case FUSE_INTERRUPT: return locks_.run(head, words, out);
        case FUSE_IOCTL: return -ENOTTY;
        default: return attributes_.run(head, words, out);
    }
}

// Pages that the kernel has of an earlier open are good if nothing but reads came since.
Done Session::open(const fuse_in_header& head, Words& words, Bytes& out) {
    fuse_open_in in{};
    if (!words.take(in)) return -EINVAL;
    const bool directory = head.opcode == FUSE_OPENDIR;
    const int wish = static_cast<int>(in.flags);
    const int flags = directory ? O_RDONLY | O_DIRECTORY : wish & (O_ACCMODE | O_APPEND | O_TRUNC);
    // The user's own files: each open sees what was closed before it.
    const bool noted = leases_.is_watched_file(head.nodeid);
    const bool watched = noted && leases_.kind_of(head.nodeid) == Lease::program;
    Handles::Handle opened;
    if (const int error = open_node(nodes_, proc_.get(), head.nodeid, flags, opened.fd); error != 0)
        return error;
    opened.node = head.nodeid;
    opened.directory = directory;
    if (watched) leases_.grant(Lease::program);
    if (directory) return handles_.put(std::move(opened), watched ? FOPEN_CACHE_DIR : 0, out);
    struct stat st {};
    if (::fstat(opened.fd.get(), &st) != 0) return -errno;
    if (!S_ISREG(st.st_mode)) return -EISDIR;
    if (st.st_nlink != 1) leases_.grant(Lease::none);
    Node& node = *nodes_.find(head.nodeid);
    const Stamp now = stamp_of(st);
    const bool keeps = node.known && node.stamp == now && (wish & O_TRUNC) == 0;
    // The kernel makes one empty itself.
    opened_changed_ = node.told != now && (wish & O_TRUNC) == 0;
    node.stamp = now;
    node.known = true;
    if (noted && (wish & O_ACCMODE) == O_RDONLY && is_program(node, st))
        contents_.opened(head.nodeid, opened.fd.get(), st);
    return handles_.put(std::move(opened), keeps ? FOPEN_KEEP_CACHE : 0, out);
}

void Session::expect_contents_of(Session& other) {
    for (const auto& [number, h] : other.handles_.all()) {
        const Node* const node = h.directory ? nullptr : other.nodes_.find(h.node);
        struct stat st {};
        if (node && (::fcntl(h.fd.get(), F_GETFL) & O_ACCMODE) == O_RDONLY &&
            ::fstat(h.fd.get(), &st) == 0 && is_program(*node, st))
            contents_.expect(h.fd.get(), st, &other == this ? h.node : 0);
    }
}

// ---- what a job that is about to come here has open where it is

// Opens ahead what a moving job has open. A file that the job may write to gets no lease on its
// attributes: its length is known only when the job has stopped, so the client has to ask.
class Session::Moves {
  public:
    Moves(Session& to, Session& from, const Told& told) : to_(to), from_(from), told_(told) {
        for (const auto& [number, h] : from_.handles_.all())
            if (!h.directory && flags_of(h) != O_RDONLY) written_.insert(h.node);
    }

    void open_all() {
        size_t opened = 0;
        for (const auto& [number, h] : from_.handles_.all()) {
            const Node* const there = h.directory ? nullptr : from_.nodes_.find(h.node);
            if (!there || there->quiet) continue;  // many, kept open for whoever opens them next
            if (h.unused_moves >= unused_moves_max) continue;
            const uint64_t node = find(h.node);
            if (node == 0) continue;
            if (++opened > opens_max || !ask(open_request(node, flags_of(h)), true)) return;
            to_.handles_.note_ahead(answer_, h.unused_moves + 1);
        }
    }

  private:
    static uint32_t flags_of(const Handles::Handle& h) {
        return static_cast<uint32_t>(::fcntl(h.fd.get(), F_GETFL)) & (O_ACCMODE | O_APPEND);
    }
    // Returns the node's number here; 0: it has none.
    uint64_t find(uint64_t id) {
        uint64_t here = FUSE_ROOT_ID;
        for (const uint64_t step : way_to(id, from_.nodes_)) {
            const auto [it, is_new] = here_.try_emplace(step, 0);
            if (is_new) it->second = look_up(here, step);
            here = it->second;
            if (here == 0) return 0;
        }
        return here == FUSE_ROOT_ID ? 0 : here;
    }
    uint64_t look_up(uint64_t directory, uint64_t id) {
        const Node& there = *from_.nodes_.find(id);
        if (!ask(lookup_request(directory, there.name), !written_.contains(id))) return 0;
        fuse_entry_out entry{};
        if (answer_.size() != sizeof(fuse_out_header) + sizeof entry) return 0;
        std::memcpy(&entry, answer_.data() + sizeof(fuse_out_header), sizeof entry);
        const Node* const here = to_.nodes_.find(entry.nodeid);
        return here && here->dev == there.dev && here->ino == there.ino ? entry.nodeid : 0;
    }
    bool ask(const Bytes& request, bool leased) {
        answer_.clear();
        to_.handle(request, answer_);
        return told_(request, answer_, leased ? to_.leased() : Lease::none);
    }

    Session &to_, &from_;
    const Told& told_;
    std::set<uint64_t> written_;
    std::map<uint64_t, uint64_t> here_;  // by the number there
    Bytes answer_;
};

void Session::open_as(Session& other, const Told& told) { Moves(*this, other, told).open_all(); }

}  // namespace souk::files
