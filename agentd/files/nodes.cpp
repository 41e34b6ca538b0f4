// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/nodes.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/home_inode.hpp"

namespace souk::files {
namespace {

constexpr unsigned depth_max = 256;  // of directories that are opened again, one in the other

// Opens one name below a directory. It follows no link, so nothing of /proc leads elsewhere.
Fd open_below(int parent, const char* name) {
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    return Fd(static_cast<int>(::syscall(SYS_openat2, parent, name, &how, sizeof how)));
}

// Tells whether the kernel makes up the contents there: reading them would be a look into processes
// and the machine.
bool is_of_the_kernel(int fd) {
    struct statfs fs {};
    if (::fstatfs(fd, &fs) != 0) return true;
    constexpr uint32_t types[] = {PROC_SUPER_MAGIC,
                                  SYSFS_MAGIC,
                                  CGROUP_SUPER_MAGIC,
                                  CGROUP2_SUPER_MAGIC,
                                  DEVPTS_SUPER_MAGIC,
                                  DEBUGFS_MAGIC,
                                  TRACEFS_MAGIC,
                                  SECURITYFS_MAGIC,
                                  BPF_FS_MAGIC,
                                  EFIVARFS_MAGIC,
                                  PSTOREFS_MAGIC,
                                  NSFS_MAGIC,
                                  0x62656570 /* configfs */,
                                  0x19800202 /* mqueue */};
    return std::ranges::find(types, static_cast<uint32_t>(fs.f_type)) != std::end(types);
}

bool is_born(const Node& node, const struct statx& st) {
    return st.stx_btime.tv_sec == node.born_s && st.stx_btime.tv_nsec == node.born_ns;
}

}  // namespace

Result<Export> open_export(const std::string& root, const std::vector<std::string>& sealed,
                           const std::vector<std::string>& quiet) {
    Export tree;
    TRY_ASSIGN(tree.root, open_at(AT_FDCWD, root, O_PATH | O_DIRECTORY));
    const auto find = [](const std::vector<std::string>& paths, auto& found) {
        for (const std::string& path : paths) {
            struct statx st {};
            const Fd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
            if (fd && Nodes::stat(fd.get(), st) == 0)  // what is not there need not be known
                found.emplace_back(Nodes::device(st), st.stx_ino);
        }
    };
    find(sealed, tree.sealed);
    find(quiet, tree.quiet);
    tree.uid = ::geteuid();
    tree.gid = ::getegid();
    return tree;
}

uint64_t Nodes::device(const struct statx& st) {
    return makedev(st.stx_dev_major, st.stx_dev_minor);
}

int Nodes::stat(int fd, struct statx& st) {
    const int got =
        ::statx(fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st);
    return got == 0 ? 0 : -errno;
}

uint64_t first_number() {
    uint32_t nonce = 0;
    if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        nonce = static_cast<uint32_t>(::getpid());
    return uint64_t{nonce} << 31 | 1;
}

Nodes::Nodes(const Export& tree, size_t fds_max, size_t nodes_max)
    : tree_(tree), fds_max_(fds_max), nodes_max_(nodes_max) {
    next_ = first_number() + 1;
    Node root;
    struct statx st {};
    (void)stat(tree.root.get(), st);
    root.dev = root_dev_ = device(st);
    root.ino = root_ino_ = st.stx_ino;
    root.kind = S_IFDIR;
    root.refs = 1;
    root.pinned = true;
    root.quiet = std::ranges::find(tree.quiet, std::pair(root.dev, root.ino)) != tree.quiet.end();
    by_inode_[{root.dev, root.ino}] = FUSE_ROOT_ID;
    root.fd = Fd(::fcntl(tree.root.get(), F_DUPFD_CLOEXEC, 3));
    nodes_.emplace(FUSE_ROOT_ID, std::move(root));
}

uint64_t Nodes::shown_ino(uint64_t dev, uint64_t ino) const {
    return home_inode({root_dev_, root_ino_}, {dev, ino});
}

Node* Nodes::find(uint64_t id) {
    const auto it = nodes_.find(id);
    return it == nodes_.end() ? nullptr : &it->second;
}

void Nodes::make_room() {
    while (open_.size() >= fds_max_) {
        Node& oldest = nodes_.at(open_.front());
        open_.pop_front();
        oldest.fd.reset();
    }
}

void Nodes::opened(uint64_t id, Node& node, Fd fd) {
    node.fd = std::move(fd);
    if (!node.pinned) node.used = open_.insert(open_.end(), id);
}

int Nodes::fd_of(uint64_t id) { return fd_of(id, 0); }

int Nodes::fd_of(uint64_t id, unsigned depth) {
    Node* node = find(id);
    if (!node) return -ESTALE;
    if (!node->fd)
        if (const int error = reopen(id, *node, depth); error != 0) return error;
    if (!node->pinned) open_.splice(open_.end(), open_, node->used);
    return node->fd.get();
}

int Nodes::reopen(uint64_t id, Node& node, unsigned depth) {
    if (node.name.empty() || depth >= depth_max) return -ESTALE;
    const int parent = fd_of(node.parent, depth + 1);
    if (parent < 0) return parent;
    Fd fd = open_below(parent, node.name.c_str());
    struct statx st {};
    if (!fd) return errno == ENOENT ? -ESTALE : -errno;
    if (const int error = stat(fd.get(), st); error != 0) return error;
    if (device(st) != node.dev || st.stx_ino != node.ino || !is_born(node, st)) return -ESTALE;
    make_room();
    opened(id, node, std::move(fd));
    return 0;
}

bool Nodes::is_sealed(int fd, const struct statx& st, uint64_t parent_dev) const {
    if (std::ranges::find(tree_.sealed, std::pair(device(st), uint64_t{st.stx_ino})) !=
        tree_.sealed.end())
        return true;
    return device(st) != parent_dev && is_of_the_kernel(fd);
}

int Nodes::lookup(uint64_t parent, const char* name, uint64_t& id, struct statx& st) {
    const int below = fd_of(parent);
    if (below < 0) return below;
    const Node& directory = nodes_.at(parent);
    if (directory.kind != S_IFDIR) return -ENOTDIR;
    if (directory.sealed) return -ENOENT;
    Fd fd = open_below(below, name);
    if (!fd) return errno == EXDEV ? -ENOENT : -errno;
    if (const int error = stat(fd.get(), st); error != 0) return error;
    return enter(std::move(fd), st, parent, name, id);
}

int Nodes::adopt(Fd path, uint64_t& id, struct statx& st) {
    if (const int error = stat(path.get(), st); error != 0) return error;
    const int error = enter(std::move(path), st, 0, "", id);
    if (error != 0) return error;
    Node& node = nodes_.at(id);
    if (!node.pinned) open_.erase(node.used);
    node.pinned = true;  // it has no name to be found by
    return 0;
}

int Nodes::enter(Fd fd, const struct statx& st, uint64_t parent, const char* name, uint64_t& id) {
    const Key key{device(st), st.stx_ino};
    if (const auto known = by_inode_.find(key); known != by_inode_.end()) {
        id = known->second;
        Node& node = nodes_.at(id);
        // If the node has no descriptor, nothing keeps the inode: its number may be another file's
        // by now.
        if (id == FUSE_ROOT_ID || node.fd || is_born(node, st)) {
            ++node.refs;
            if (id == FUSE_ROOT_ID) return 0;
            if (!node.fd) {
                make_room();
                opened(id, node, std::move(fd));
            }
            if (parent != 0) place(id, node, parent, name);
            return 0;
        }
    }
    if (nodes_.size() >= nodes_max_) return -ENFILE;
    id = next_++;
    Node node;
    node.dev = key.first;
    node.ino = key.second;
    node.born_s = st.stx_btime.tv_sec;
    node.born_ns = st.stx_btime.tv_nsec;
    node.kind = st.stx_mode & S_IFMT;
    node.refs = 1;
    node.sealed =
        node.kind == S_IFDIR && is_sealed(fd.get(), st, parent ? nodes_.at(parent).dev : node.dev);
    node.quiet = (parent && nodes_.at(parent).quiet) ||
                 std::ranges::find(tree_.quiet, key) != tree_.quiet.end();
    Node& kept = nodes_.emplace(id, std::move(node)).first->second;
    by_inode_[key] = id;
    make_room();
    opened(id, kept, std::move(fd));
    if (parent != 0) place(id, kept, parent, name);
    return 0;
}

void Nodes::place(uint64_t id, Node& node, uint64_t parent, const char* name) {
    node.name = name;
    if (node.pinned) {  // it has a name again
        make_room();
        node.pinned = false;
        node.used = open_.insert(open_.end(), id);
    }
    if (node.parent == parent) return;
    const uint64_t old = std::exchange(node.parent, parent);
    if (Node* above = find(parent)) ++above->below;
    if (Node* above = find(old); above && --above->below == 0 && above->refs == 0 && old != id)
        remove(old);
}

void Nodes::remove(uint64_t id) {
    // A directory that only its last file held goes with it.
    while (id > FUSE_ROOT_ID) {
        const auto it = nodes_.find(id);
        if (it == nodes_.end() || it->second.refs > 0 || it->second.below > 0) return;
        Node& node = it->second;
        if (node.fd && !node.pinned) open_.erase(node.used);
        const auto known = by_inode_.find({node.dev, node.ino});
        if (known != by_inode_.end() && known->second == id) by_inode_.erase(known);
        const uint64_t parent = node.parent;
        nodes_.erase(it);
        id = parent;
        if (Node* above = find(id)) --above->below;
    }
}

void Nodes::forget(uint64_t id, uint64_t refs) {
    Node* node = find(id);
    if (!node || id == FUSE_ROOT_ID) return;
    node->refs -= std::min(node->refs, refs);
    if (node->refs == 0) remove(id);
}

void Nodes::keep_file(uint64_t parent, int parent_fd, const char* name) {
    struct statx st {};
    if (::statx(parent_fd, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &st) != 0) return;
    const auto known = by_inode_.find({device(st), st.stx_ino});
    if (known == by_inode_.end()) return;
    Node& node = nodes_.at(known->second);
    // The node is known by another of its names, and can be found by that.
    if (node.pinned || node.parent != parent || node.name != name) return;
    if (fd_of(known->second) < 0) return;
    open_.erase(node.used);
    node.pinned = true;
}

// The file keeps its number. It must get its new name, because by the old one it would not be found
// again.
void Nodes::renamed(uint64_t parent, const char* name, uint64_t new_parent, const char* new_name) {
    const int below = fd_of(new_parent);
    struct statx st {};
    if (below < 0 || ::statx(below, new_name, AT_SYMLINK_NOFOLLOW, STATX_INO, &st) != 0) return;
    const auto known = by_inode_.find({device(st), st.stx_ino});
    if (known == by_inode_.end()) return;
    Node& node = nodes_.at(known->second);
    if (node.parent == parent && node.name == name)
        place(known->second, node, new_parent, new_name);
}

}  // namespace souk::files
