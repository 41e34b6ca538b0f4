// SPDX-License-Identifier: GPL-2.0-or-later
// Nodes: the files that the kernel of a job's machine knows, by the number that it calls each by.
// A node is an inode at home, held by an O_PATH descriptor, so that it is the same file whatever
// becomes of its name. There are fewer descriptors than a kernel may know files: the ones that were
// not asked for lately are closed, and opened again by their name, below their directory; a file
// that is another then (device, inode, time of birth) is refused (ESTALE). Files whose name is gone
// keep theirs. One name at a time is looked up, and never a link followed. Owned by a Session.
//
// Errors are negative errno values, as FUSE has them.
#pragma once

#include <linux/fuse.h>
#include <sys/stat.h>

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk::files {

// A tree shows this of the home.
struct Export {
    Fd root;  // O_PATH: the top
    // These directories are shown empty (/proc, /dev), because they belong to the machine and not
    // to its files. They are named by device and inode. The kernel's own file systems are shown
    // empty too.
    std::vector<std::pair<uint64_t, uint64_t>> sealed;
    // Directories of programs: what lies in them seldom changes (cache.hpp).
    std::vector<std::pair<uint64_t, uint64_t>> quiet;
    uint32_t uid = 0, gid = 0;  // of the server's user
};
Result<Export> open_export(const std::string& root, const std::vector<std::string>& sealed,
                           const std::vector<std::string>& quiet = {});

// A Stamp says of which version of a file's content the kernel knows.
struct Stamp {
    int64_t mtime_s = 0, ctime_s = 0;
    uint32_t mtime_ns = 0, ctime_ns = 0;
    uint64_t size = 0;
    bool operator==(const Stamp&) const = default;
};

struct Node {
    Fd fd;  // O_PATH; may be closed (Nodes::fd_of)
    uint64_t dev = 0, ino = 0;
    int64_t born_s = 0;
    uint32_t born_ns = 0;
    uint32_t kind = 0;    // S_IFMT of its mode
    uint64_t refs = 0;    // that the kernel has
    uint32_t below = 0;   // nodes whose directory it is
    uint64_t parent = 0;  // its directory when it was last looked up there by that name
    std::string name;
    bool sealed = false;
    bool quiet = false;   // it is a directory of programs, or lies in one
    bool pinned = false;  // it has no name to be found by: it keeps its descriptor
    bool known = false;   // `stamp` is of the pages that the kernel has
    Stamp stamp;
    Stamp told;  // of the attributes that the kernel was told last
    std::list<uint64_t>::iterator used;
};

// Returns the number from which a server counts files and descriptors. It is random, so that a
// number of an earlier server names nothing.
uint64_t first_number();

class Nodes {
  public:
    Nodes(const Export& tree, size_t fds_max, size_t nodes_max);

    // Returns null if there is no such number.
    Node* find(uint64_t id);
    // Returns the node's descriptor, which is good until the next call that may need another.
    int fd_of(uint64_t id);
    // Looks a name up and adds a reference. `st` is of the file.
    int lookup(uint64_t parent, const char* name, uint64_t& id, struct statx& st);
    // Does the same for a file that is open already (O_TMPFILE).
    int adopt(Fd path, uint64_t& id, struct statx& st);
    void forget(uint64_t id, uint64_t refs);
    // Call this before the name goes. If the kernel knows the file by that name, the file keeps its
    // descriptor until it is looked up by another name.
    void keep_file(uint64_t parent, int parent_fd, const char* name);
    void renamed(uint64_t parent, const char* name, uint64_t new_parent, const char* new_name);

    // Returns the number of an inode as it is shown: inodes of different devices have different
    // numbers, and the top has the number that its kernel gives it before it asks.
    uint64_t shown_ino(uint64_t dev, uint64_t ino) const;
    static uint64_t device(const struct statx& st);
    static int stat(int fd, struct statx& st);
    size_t count() const { return nodes_.size(); }
    size_t open_count() const { return open_.size(); }

  private:
    using Key = std::pair<uint64_t, uint64_t>;
    int reopen(uint64_t id, Node& node, unsigned depth);
    int fd_of(uint64_t id, unsigned depth);
    int enter(Fd fd, const struct statx& st, uint64_t parent, const char* name, uint64_t& id);
    bool is_sealed(int fd, const struct statx& st, uint64_t parent_dev) const;
    void opened(uint64_t id, Node& node, Fd fd);
    void make_room();
    void remove(uint64_t id);
    void place(uint64_t id, Node& node, uint64_t parent, const char* name);

    const Export& tree_;
    size_t fds_max_, nodes_max_;
    uint64_t root_dev_ = 0, root_ino_ = 0;
    uint64_t next_;
    std::unordered_map<uint64_t, Node> nodes_;
    std::map<Key, uint64_t> by_inode_;
    std::list<uint64_t> open_;  // with a descriptor, the one used last at the end
};

}  // namespace souk::files
