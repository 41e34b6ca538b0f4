// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/job_watcher.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace souk::unit {
namespace {

std::string proc_of(int pid, const std::string& name) {
    return "/proc/" + std::to_string(pid) + "/" + name;
}

std::string proc_text(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

std::string proc_link(const std::string& path) {
    char target[4096];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    return n > 0 ? std::string(target, static_cast<size_t>(n)) : std::string();
}

std::vector<std::string> proc_names(const std::string& directory) {
    std::vector<std::string> names;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(directory, gone))
        names.push_back(entry.path().filename());
    return names;
}

// The words of the line of that name in a /proc/PID/status.
std::vector<std::string> status_words(const std::string& status, const std::string& name) {
    const size_t at = ("\n" + status).find("\n" + name + ":");
    if (at == std::string::npos) return {"missing"};
    std::istringstream line(status.substr(at, status.find('\n', at) - at));
    std::vector<std::string> words;
    std::string word;
    line >> word;
    while (line >> word) words.push_back(word);
    return words;
}

// The sockets in a table of /proc/PID/net, by the number of the column with their inodes; `wanted`
// is told the second column.
template <class Wanted>
void add_sockets(const std::string& table, int column, Wanted wanted, std::set<std::string>& to) {
    std::istringstream lines(proc_text(table));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        std::istringstream words(line);
        std::string word, local, state;
        for (int i = 0; i <= column && words >> word; ++i) {
            if (i == 1) local = word;
            if (i == 3) state = word;
        }
        if (wanted(local, state)) to.insert("socket:[" + word + "]");
    }
}

}  // namespace

void JobWatcher::found(int pid, const std::string& what) {
    found_.push_back("process " + std::to_string(pid) + ": " + what);
}

void JobWatcher::look_at_status(int pid, const std::string& task) {
    const std::string status = proc_text(proc_of(pid, "task/" + task + "/status"));
    if (status.empty()) return;
    const std::string user = std::to_string(user_);
    for (const char* name : {"Uid", "Gid"})
        for (const std::string& id : status_words(status, name))
            if (id != user) found(pid, std::string(name) + " " + id);
    for (const std::string& group : status_words(status, "Groups"))
        if (group != user) found(pid, "group " + group);
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
        if (status_words(status, set) != std::vector<std::string>{std::string(16, '0')})
            found(pid, set);
    if (status_words(status, "NoNewPrivs") != std::vector<std::string>{"1"})
        found(pid, "NoNewPrivs");
}

// A policy and a nice value are the user's own to choose only downwards: he has neither limit here.
void JobWatcher::look_at_priority(int pid, const std::string& task) {
    const std::string stat = proc_text(proc_of(pid, "task/" + task + "/stat"));
    const size_t at = stat.rfind(')');
    if (at == std::string::npos) return;
    std::istringstream words(stat.substr(at + 2));
    std::vector<std::string> all;
    for (std::string word; words >> word;) all.push_back(word);
    constexpr size_t nice = 16, policy = 38;  // proc_of(5), from the third field on
    if (all.size() <= policy) return found(pid, "no policy");
    if (std::stoi(all[nice]) < 0) found(pid, "nice " + all[nice]);
    if (all[policy] == "1" || all[policy] == "2" || all[policy] == "6")
        found(pid, "real-time policy " + all[policy]);
}

void JobWatcher::look_at_place(int pid) {
    for (const char* name : {"ns/mnt", "ns/net", "ns/pid", "ns/user", "ns/cgroup", "root"})
        if (proc_link(proc_of(pid, name)) != proc_link(proc_of(init_, name)))
            found(pid, std::string(name) + " " + proc_link(proc_of(pid, name)));
    for (const char* name : {"ns/ipc", "ns/uts"})
        if (proc_link(proc_of(pid, name)) == proc_link(std::string("/proc/self/") + name))
            found(pid, std::string("the node's ") + name);
    for (const char* name : {"loginuid", "attr/current", "uid_map"})
        if (proc_text(proc_of(pid, name)) != proc_text(proc_of(init_, name))) found(pid, name);
    const std::string stat = proc_text(proc_of(pid, "stat"));
    int group = 0, session = 0;
    const size_t at = stat.rfind(')');
    if (at == std::string::npos ||
        std::sscanf(stat.c_str() + at, ") %*c %*d %d %d", &group, &session) != 2 || group == 0 ||
        session == 0)
        found(pid, "no session");
}

bool JobWatcher::may_use(const std::string& path, unsigned flags) const {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0 || (flags & O_PATH) != 0) return true;
    unsigned wants = (flags & O_ACCMODE) == O_RDONLY ? 4 : (flags & O_ACCMODE) == O_WRONLY ? 2 : 6;
    const unsigned has = st.st_uid == user_   ? st.st_mode >> 6 & 7
                         : st.st_gid == user_ ? st.st_mode >> 3 & 7
                                              : st.st_mode & 7;
    return (has & wants) == wants || st.st_uid == user_;
}

void JobWatcher::look_at_files(int pid) {
    constexpr std::string_view usual[] = {"pipe:[",
                                          "socket:[",
                                          "anon_inode:[eventpoll]",
                                          "anon_inode:[eventfd]",
                                          "anon_inode:[signalfd]",
                                          "anon_inode:[timerfd]",
                                          "anon_inode:[pidfd]",
                                          "anon_inode:inotify",
                                          "pidfd:[",
                                          "/memfd:"};
    for (const std::string& fd : proc_names(proc_of(pid, "fd"))) {
        const std::string target = proc_link(proc_of(pid, "fd/" + fd));
        if (target.empty()) continue;
        if (special_.contains(target)) found(pid, "a packet or raw socket");
        if (waiting_.contains(target)) found(pid, "waits at a port of the system's");
        if (std::ranges::any_of(usual, [&](auto kind) { return target.starts_with(kind); }))
            continue;
        bool own = false;
        for (const char* space : {"ns/mnt", "ns/net", "ns/pid", "ns/user", "ns/cgroup"})
            own = own || target == proc_link(proc_of(init_, space));
        if (own) continue;
        unsigned flags = 0;
        const std::string info = proc_text(proc_of(pid, "fdinfo/" + fd));
        const size_t at = info.find("flags:");
        if (at != std::string::npos) std::sscanf(info.c_str() + at, "flags: %o", &flags);
        if (target[0] != '/' || !may_use(proc_of(pid, "fd/" + fd), flags))
            found(pid, "fd " + fd + ": " + target);
    }
    for (const char* name : {"exe", "cwd"})
        if (!may_use(proc_of(pid, name), O_RDONLY)) found(pid, std::string(name) + " is not his");
}

void JobWatcher::look_at_maps(int pid) {
    for (const std::string& range : proc_names(proc_of(pid, "map_files")))
        if (!may_use(proc_of(pid, "map_files/" + range), O_RDONLY))
            found(pid, "maps " + proc_link(proc_of(pid, "map_files/" + range)));
}

void JobWatcher::look_at(int pid) {
    for (const std::string& task : proc_names(proc_of(pid, "task"))) {
        look_at_status(pid, task);
        look_at_priority(pid, task);
    }
    look_at_place(pid);
    look_at_files(pid);
    look_at_maps(pid);
}

std::vector<std::string> JobWatcher::look(int& looked) {
    found_.clear();
    const auto any = [](const std::string&, const std::string&) { return true; };
    const auto low = [](const std::string& local, const std::string& state) {
        const size_t colon = local.rfind(':');
        return state == "0A" && colon != std::string::npos &&
               std::stoul(local.substr(colon + 1), nullptr, 16) < 1024;
    };
    add_sockets(proc_of(init_, "net/packet"), 8, any, special_);
    for (const char* table : {"net/raw", "net/raw6"})
        add_sockets(proc_of(init_, table), 9, any, special_);
    for (const char* table : {"net/tcp", "net/tcp6"})
        add_sockets(proc_of(init_, table), 9, low, waiting_);
    const std::string space = proc_link(proc_of(init_, "ns/pid"));
    looked = 0;
    for (const std::string& name : proc_names("/proc")) {
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        const int pid = std::stoi(name);
        const std::string status = proc_text(proc_of(pid, "status"));
        // CRIU's own came from outside: its parent is souk-root's, or the test.
        if (pid == init_ || proc_link(proc_of(pid, "ns/pid")) != space ||
            status_words(status, "PPid") == std::vector<std::string>{std::to_string(::getpid())} ||
            status_words(status, "State")[0] == "Z")
            continue;
        ++looked;
        look_at(pid);
    }
    return found_;
}

}  // namespace souk::unit
