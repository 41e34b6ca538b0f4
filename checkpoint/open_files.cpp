// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/open_files.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <tuple>

#include "checkpoint/kept_files.h"
#include "kernel/base/home_inode.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/laid_over.h"
#include "kernel/sys/store/network_files.hpp"

namespace souk {
namespace {
constexpr size_t record_bytes_max = 64 << 20;
constexpr std::string_view header = "souk-files 1";
constexpr size_t strings_each = 11;
constexpr const char* map_place = "map";
constexpr std::string_view fd_place = "fd ";
constexpr const char* home_type = "fuse.souk";  // agentd/init/setup.cpp
// These directories show the machine where a job runs, also in a job whose tree is its home's
// (agentd/init/setup.cpp binds the same ones). Files below them are not files of the home.
constexpr std::string_view of_machine[] = {"/proc", "/sys", "/dev", "/run"};

struct Mount {
    std::string device, type, source;
    std::string point;  // as the process sees it
};

// Returns the mounts by their numbers. Format: proc_pid_mountinfo(5).
std::map<uint64_t, Mount> mounts_of(const std::string& table) {
    std::map<uint64_t, Mount> mounts;
    for (size_t at = 0; at < table.size();) {
        const size_t end = std::min(table.find('\n', at), table.size());
        std::vector<std::string_view> words;
        const std::string_view line(table.data() + at, end - at);
        for (size_t from = 0; from < line.size();) {
            const size_t to = std::min(line.find(' ', from), line.size());
            words.push_back(line.substr(from, to - from));
            from = to + 1;
        }
        at = end + 1;
        const auto dash = std::ranges::find(words, "-");
        const auto number = words.empty() ? std::nullopt : whole_number<uint64_t>(words[0]);
        if (!number || words.end() - dash < 4) continue;
        mounts[*number] = {std::string(words[2]), std::string(dash[1]), std::string(dash[2]),
                           std::string(words[4])};
    }
    return mounts;
}

// Tells which file systems agentd sees. Its table of mounts is read when it is needed first,
// because a job seldom has a file that is not in the file system of the root directory.
class Outside {
  public:
    bool has(dev_t device, const std::string& mount) {
        if (!top_) {
            struct statx st {};
            top_ = makedev(0, 0);
            if (::statx(AT_FDCWD, "/", AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0)
                top_ = makedev(st.stx_dev_major, st.stx_dev_minor);
        }
        if (device == *top_) return true;
        if (!devices_) {
            devices_.emplace();
            if (const auto table = read_file(AT_FDCWD, "/proc/self/mountinfo"))
                for (const auto& [number, one] : mounts_of(*table)) devices_->insert(one.device);
        }
        // Without the table no file system counts as the capsule's own.
        return devices_->empty() || devices_->contains(mount);
    }

  private:
    std::optional<dev_t> top_;
    std::optional<std::set<std::string>> devices_;
};

// Returns the root of the job's tree if that is the node's own. At its home a job with its home's
// files has the node's own tree. Nothing: the job's root is served, or is the node's.
std::optional<HomeInode> root_of_tree(const SeenProcess& process,
                                      const std::map<uint64_t, Mount>& mounts) {
    const auto root = std::ranges::find(process.files, "root", &SeenFile::place);
    if (root == process.files.end() || !root->known || root->target != SOUK_FILES_ROOT)
        return std::nullopt;
    const auto mount = mounts.find(root->mount);
    if (mount == mounts.end() || mount->second.type == home_type) return std::nullopt;
    return HomeInode{root->device, root->inode};
}

bool is_of_machine(std::string_view point, const std::vector<std::string>& laid) {
    const auto is_below = [&](std::string_view top) {
        return point.starts_with(top) && (point.size() == top.size() || point[top.size()] == '/');
    };
    return std::ranges::any_of(of_machine, is_below) || std::ranges::any_of(laid, is_below);
}

// Lists the files of one process that a restore must find again, from all that the process has
// open.
struct Sorter {
    pid_t pid;  // inside
    const std::map<uint64_t, Mount>& mounts;
    Outside& outside;
    std::optional<HomeInode> tree;  // root_of_tree
    const std::vector<std::string>& laid;
    bool with_deleted;
    std::vector<OpenFile>& files;

    void add(const SeenFile& seen) const {
        // a pipe, a socket, an anonymous inode; a deleted file
        if (!seen.known || (seen.links == 0 && !with_deleted)) return;
        OpenFile f;
        f.pid = pid;
        f.place = seen.place;
        f.path = seen.target;
        f.device = seen.device;
        f.inode = seen.inode;
        f.kind = seen.mode & S_IFMT;
        const bool device = f.kind == S_IFCHR || f.kind == S_IFBLK;
        if (device) f.rdev = seen.rdev;
        const auto mount = mounts.find(seen.mount);
        if (seen.mount != 0 && mount != mounts.end()) {
            f.type = mount->second.type;
            f.source = mount->second.source;
            // of a device its number counts
            f.capsules = !device && !outside.has(f.device, mount->second.device);
            if (tree && !device && !is_of_machine(mount->second.point, laid)) {
                f.type = home_type;
                f.source = "souk";
                f.inode = home_inode(*tree, {f.device, f.inode});
                f.capsules = true;
            }
        }
        for (const char* of_the_kernel : {"proc", "sysfs", "devpts", "cgroup", "cgroup2", "mqueue"})
            if (f.type == of_the_kernel) return;
        files.push_back(std::move(f));
    }
};

// An earlier look's numbers are worth nothing where the file system makes them up.
bool keeps_inodes(std::string_view type) {
    constexpr std::string_view types[] = {"ext2", "ext3", "ext4",     "xfs",    "btrfs",   "tmpfs",
                                          "f2fs", "nfs",  "nfs4",     "zfs",    "ramfs",   "erofs",
                                          "ceph", "gpfs", "squashfs", "lustre", "devtmpfs"};
    return std::ranges::find(types, type) != std::end(types);
}

bool is_device(const OpenFile& f) { return f.kind == S_IFCHR || f.kind == S_IFBLK; }

// Each node's is another one (agentd/init/setup.cpp), and some nodes have none.
bool is_laid_over(const OpenFile& f) { return souk_is_laid_over(f.path.c_str()) != 0; }

constexpr std::string_view deleted = " (deleted)";
bool is_deleted(const OpenFile& f) { return f.path.ends_with(deleted); }

using Names = std::set<std::tuple<uint64_t, uint64_t, std::string>>;

// `names` of the files that were there: one that has several is restored by any of them.
// `put_back`: what lies below it is as it was, whichever inode it has; empty: nothing.
bool same_file(const OpenFile& was, const OpenFile& is, bool one_kernel, const Names& names,
               const std::string& put_back) {
    if (was.kind != is.kind) return false;
    if (is_device(was)) return was.rdev == is.rdev;
    // The socket is open by O_PATH. If the job listens there, its restore has made it anew.
    if (S_ISSOCK(was.kind)) return was.path == is.path;
    if (was.capsules) {
        if (!is.capsules || is_deleted(was)) return is.capsules;
        if (was.type != home_type && names.contains({was.device, was.inode, is.path})) return true;
        // The file is one of the job's home. Each inode there has one number wherever the job is,
        // so the numbers can be compared.
        const bool by_name = !put_back.empty() && was.path.starts_with(put_back + "/");
        return was.path == is.path && (was.type != home_type || by_name || was.inode == is.inode);
    }
    const bool one_server = is_network_filesystem(was.type) && was.type == is.type &&
                            was.source == is.source && !was.type.starts_with("fuse");
    if (!one_kernel) return !one_server || !keeps_inodes(was.type) || was.inode == is.inode;
    if (was.device == is.device && keeps_inodes(was.type)) return was.inode == is.inode;
    return was.path == is.path || is_deleted(was);
}

std::string told(const OpenFile& f) {
    return f.path + " (device " + std::to_string(major(f.device)) + ":" +
           std::to_string(minor(f.device)) + ", inode " + std::to_string(f.inode) + ")";
}

Status is_another(const OpenFile& was, const OpenFile* is) {
    return fail("process " + std::to_string(was.pid) + ", " + was.place + ": " + told(was) +
                " is another file now" + (is ? ": " + told(*is) : " or gone"));
}
}  // namespace

std::string OpenFiles::encode() const {
    std::string text;
    const auto put = [&](std::string_view s) { text.append(s).push_back('\0'); };
    put(header);
    put(boot);
    for (const OpenFile& f : files) {
        put(std::to_string(f.pid));
        for (const std::string* s : {&f.place, &f.path, &f.type, &f.source}) put(*s);
        for (const uint64_t n : {f.device, f.inode, f.rdev, uint64_t{f.kind}, uint64_t{f.capsules}})
            put(std::to_string(n));
        put("");
    }
    return text;
}

Result<OpenFiles> OpenFiles::decode(std::string_view text) {
    std::vector<std::string_view> strings;
    for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\0', at);
        if (end == text.npos) return fail("the list of its files is cut short");
        strings.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    if (strings.size() < 2 || strings[0] != header || (strings.size() - 2) % strings_each != 0)
        return fail("the list of its files is none");
    OpenFiles list;
    list.boot = strings[1];
    for (size_t i = 2; i < strings.size(); i += strings_each) {
        const auto* s = &strings[i];
        const auto pid = whole_number<pid_t>(s[0]);
        std::optional<uint64_t> numbers[5];
        bool good = pid.has_value() && s[10].empty();
        for (size_t n = 0; n < 5; ++n) {
            numbers[n] = whole_number<uint64_t>(s[5 + n]);
            good = good && numbers[n];
        }
        if (!good || *numbers[3] > S_IFMT || *numbers[4] > 1)
            return fail("the list of its files is damaged");
        list.files.push_back({*pid, std::string(s[1]), std::string(s[2]), std::string(s[3]),
                              std::string(s[4]), *numbers[0], *numbers[1], *numbers[2],
                              static_cast<uint32_t>(*numbers[3]), *numbers[4] == 1});
    }
    return list;
}

Result<OpenFiles> open_files_in(const std::vector<SeenProcess>& look, const PidsInside& pids,
                                const std::vector<std::string>& laid, bool with_deleted) {
    OpenFiles list;
    TRY_ASSIGN(list.boot, read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id"));
    Outside outside;
    std::map<uint64_t, Mount> mounts;  // of the capsule: all processes of a job are in one
    for (const auto& [inside, pid] : pids) {
        if (!mounts.empty()) break;
        if (const auto table = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/mountinfo"))
            mounts = mounts_of(*table);
    }
    for (const SeenProcess& process : look) {
        if (!pids.contains(process.pid)) continue;
        const Sorter sorter{process.pid, mounts,       outside,   root_of_tree(process, mounts),
                            laid,        with_deleted, list.files};
        // A mapping is not named by its address: neighbours may have become one.
        for (const SeenFile& f : process.files)
            if (f.place != map_place) sorter.add(f);
        const size_t before = list.files.size();
        for (const SeenFile& f : process.files)
            if (f.place == map_place) sorter.add(f);
        const auto first = list.files.begin() + static_cast<ptrdiff_t>(before);
        std::sort(first, list.files.end(), [](const OpenFile& a, const OpenFile& b) {
            return std::tie(a.device, a.inode, a.path) < std::tie(b.device, b.inode, b.path);
        });
        list.files.erase(std::unique(first, list.files.end()), list.files.end());
    }
    return list;
}

Result<OpenFiles> open_files_of(const PidsInside& pids, const std::vector<std::string>& laid,
                                const LookAt& look, bool with_deleted) {
    TRY_ASSIGN(const auto seen, look(pids, {.states = true, .mapped = true}));
    return open_files_in(seen, pids, laid, with_deleted);
}

Status leave_out_closed(OpenFiles& files, const PidsInside& pids, const LookAt& look) {
    std::map<pid_t, std::set<std::string>> open;
    TRY_ASSIGN(const auto seen, look(pids, {}));
    for (const SeenProcess& process : seen) {
        if (process.error != 0)
            return fail_errno("what process " + std::to_string(process.pid) + " has open",
                              process.error);
        for (const SeenFile& f : process.files) open[process.pid].insert(f.place);
    }
    std::erase_if(files.files, [&open](const OpenFile& f) {
        return f.place.starts_with(fd_place) && !open[f.pid].contains(f.place);
    });
    return {};
}

Status same_files(const OpenFiles& dumped, const OpenFiles& restored, const std::string& put_back) {
    const bool one_kernel = dumped.boot == restored.boot;
    std::map<std::pair<pid_t, std::string>, const OpenFile*> places;
    std::map<pid_t, std::vector<const OpenFile*>> maps, mapped;
    Names names;
    for (const OpenFile& was : dumped.files) names.insert({was.device, was.inode, was.path});
    for (const OpenFile& f : restored.files) {
        if (is_laid_over(f)) continue;
        if (f.place == map_place)
            mapped[f.pid].push_back(&f);
        else
            places[{f.pid, f.place}] = &f;
    }
    for (const OpenFile& was : dumped.files) {
        if (is_laid_over(was)) continue;
        if (was.place == map_place) {
            maps[was.pid].push_back(&was);
            continue;
        }
        const auto is = places.find({was.pid, was.place});
        if (is == places.end()) return is_another(was, nullptr);
        if (!same_file(was, *is->second, one_kernel, names, put_back))
            return is_another(was, is->second);
    }
    for (const auto& [pid, list] : maps)
        for (const OpenFile* was : list)
            if (std::ranges::none_of(mapped[pid], [&](const OpenFile* is) {
                    return same_file(*was, *is, one_kernel, names, put_back);
                }))
                return is_another(*was, nullptr);
    if (!one_kernel) return {};  // almost any file could be one of them
    for (const auto& [pid, list] : maps)
        for (const OpenFile* is : mapped[pid])
            if (!is_deleted(*is) &&  // it came out of the image, and CRIU has not cleaned up yet
                std::ranges::none_of(list, [&](const OpenFile* was) {
                    return same_file(*was, *is, true, names, put_back);
                }))
                return fail("process " + std::to_string(pid) + " maps " + told(*is) +
                            ", which is another file than any that it had mapped");
    return {};
}

Status save_open_files(int image, const OpenFiles& files) {
    return create_file(image, open_files_name, files.encode());
}

Status save_put_back(int image, const std::string& directory) {
    return create_file(image, put_back_name, SOUK_FILES_ROOT + directory);
}

namespace {
constexpr size_t made_again_bytes_max = 2 << 20;

// Files that the restore has made again are what they were, with other inodes.
void know_again(OpenFiles& dumped, const OpenFiles& restored, const Result<std::string>& made) {
    std::set<std::pair<std::string, std::string>> all;
    std::string path;
    for (size_t at = 0, end = 0; made && at < made->size(); at = end + 1) {
        end = std::min(made->find('\0', at), made->size());
        if (path.empty())
            path = made->substr(at, end - at);
        else
            all.emplace(std::exchange(path, {}), made->substr(at, end - at));
    }
    if (all.empty()) return;
    std::map<std::string, const OpenFile*> made_now;
    for (const OpenFile& is : restored.files) {
        std::string name = is.path;
        if (is_deleted(is)) name.resize(name.size() - deleted.size());
        if (all.contains({name, std::to_string(is.inode)})) made_now.emplace(std::move(name), &is);
    }
    for (OpenFile& was : dumped.files)
        if (const auto is = made_now.find(was.path); is != made_now.end()) {
            was.device = is->second->device;
            was.inode = is->second->inode;
        }
}
}  // namespace

Status check_open_files(int image, PidsInside pids, const std::vector<std::string>& laid,
                        const LookAt& look) {
    const auto text = read_file(image, open_files_name, record_bytes_max);
    if (!text && text.error().code == ENOENT)
        return fail("its image does not say what files it had");
    if (!text) return wrap("what files it had", text.error());
    TRY_ASSIGN(OpenFiles dumped, OpenFiles::decode(*text));
    std::set<pid_t> of_job;
    for (const OpenFile& f : dumped.files) of_job.insert(f.pid);
    std::erase_if(pids, [&of_job](const auto& one) { return !of_job.contains(one.first); });
    // Somebody may have taken a file away since CRIU has opened it.
    TRY_ASSIGN(const OpenFiles restored, open_files_of(pids, laid, look, true));
    know_again(dumped, restored, read_file(image, SOUK_MADE_AGAIN_NAME, made_again_bytes_max));
    const auto put_back = read_file(image, put_back_name, PATH_MAX);
    if (!put_back && put_back.error().code != ENOENT)
        return wrap("what was put back", put_back.error());
    if (auto same = same_files(dumped, restored, put_back.value_or("")); !same)
        return wrap("a file was swapped since it stood", same.error());
    return {};
}

}  // namespace souk
