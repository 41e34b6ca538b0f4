// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "kernel/base/number.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/store/mounts.hpp"
#include "tools/souk/network.hpp"
#include "tools/souk/supervise.hpp"

namespace souk {
namespace {

void end_daemon(const Daemon& d, std::vector<std::string>& note) {
    const Pidfd p = open_process(d.process);
    if (!p) return;
    (void)p.signal(SIGTERM);
    if (const auto gone = p.exited_within(Nanos::from_s(5)); gone && *gone) return;
    (void)p.signal(SIGKILL);
    if (const auto gone = p.exited_within(Nanos::from_s(5)); !gone || !*gone)
        note.push_back("process " + std::to_string(d.process.pid) + " of " + d.name +
                       " does not end");
}

// Mount points at or below a directory, deepest first.
std::vector<std::string> mounts_below(const std::string& dir) {
    std::vector<std::string> found;
    const auto mounts = own_mounts();
    for (const Mount& mount : mounts ? *mounts : std::vector<Mount>{})
        if (mount.point == dir || mount.point.starts_with(dir + "/")) found.push_back(mount.point);
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a.size() > b.size(); });
    return found;
}

void unmount_below(const std::string& dir, std::vector<std::string>& note) {
    for (const std::string& mount : mounts_below(dir))
        if (::umount2(mount.c_str(), MNT_DETACH) != 0) note.push_back("cannot unmount " + mount);
}

void remove_tree(const std::string& dir, std::vector<std::string>& note) {
    unmount_below(dir, note);
    std::error_code error;
    std::filesystem::remove_all(dir, error);
    if (error) note.push_back("cannot remove " + dir + ": " + error.message());
}

void remove_cgroups(const Instance& instance, std::vector<std::string>& note) {
    const auto groups = Cgroups::open(instance.tag);
    if (!groups) return;  // this machine has none
    if (auto removed = groups->remove({}, Nanos::from_s(20)); !removed)
        note.push_back(removed.error().message);
}

}  // namespace

std::vector<Pidfd> daemons_of(const Instance& instance) {
    std::set<std::string> configs{instance.market.dir + "/marketd.conf"};
    for (const Daemon& d : instance.nodes) configs.insert(d.dir + "/agentd.conf");
    const auto is_one = [&](const std::string& pid) {
        const auto command = read_file(AT_FDCWD, "/proc/" + pid + "/cmdline");
        if (!command) return false;
        std::istringstream words(*command);
        std::string program, option, config;
        return std::getline(words, program, '\0') && std::getline(words, option, '\0') &&
               std::getline(words, config, '\0') && option == "--config" &&
               configs.contains(config);
    };
    std::vector<Pidfd> found;
    const auto names = list_dir(AT_FDCWD, "/proc");
    for (const std::string& name : names ? *names : std::vector<std::string>{}) {
        const auto pid = whole_number<pid_t>(name);
        if (!pid || !is_one(name)) continue;
        auto fd = Pidfd::open(*pid);
        // looked at again with the pidfd held
        if (fd && is_one(name)) found.push_back(std::move(*fd));
    }
    return found;
}

void end_daemons(const Instance& instance, std::vector<std::string>& note) {
    for (const Daemon& d : instance.nodes) end_daemon(d, note);
    end_daemon(instance.market, note);
    // The record may be older than what runs: RUN was full, or its supervisor died between.
    for (const int number : {SIGTERM, SIGKILL}) {
        const std::vector<Pidfd> left = daemons_of(instance);
        for (const Pidfd& p : left) (void)p.signal(number);
        for (const Pidfd& p : left) (void)p.exited_within(Nanos::from_s(5));
    }
    for (const Pidfd& p : daemons_of(instance))
        note.push_back("process " + std::to_string(p.pid()) + " does not end");
}

void demolish(const Instance& instance, std::vector<std::string>& note) {
    end_daemons(instance, note);
    remove_cgroups(instance, note);  // and with them every job
    std::vector<std::string> names{instance.market.netns};
    for (const Daemon& d : instance.nodes) names.push_back(d.netns);
    remove_network_names(names);
    remove_tree(instance.market.dir, note);
    for (const Daemon& d : instance.nodes) {
        remove_tree(d.dir, note);
        unmount_below(d.state, note);
    }
    std::error_code ignored;
    if (!note.empty()) return;  // the record stays, so that `souk down` can try again
    for (const char* name :
         {"notify.sock", "instance.json", "instance.json.new", "supervisor.log", "lock"})
        std::filesystem::remove(instance.run + "/" + name, ignored);
    std::filesystem::remove(instance.run, ignored);
}

void remove_state(const Instance& instance, std::vector<std::string>& note) {
    remove_tree(instance.market.state, note);
    for (const Daemon& d : instance.nodes) {
        remove_tree(d.state, note);
        remove_tree(beside_state(d.state), note);
    }
    std::error_code ignored;
    for (const char* name : {"/market.json", "/market.json.new", ""})
        std::filesystem::remove(instance.state + name, ignored);
    std::filesystem::remove("/var/lib/souk", ignored);  // only if empty
    std::filesystem::remove(instance.run, ignored);     // the state may have been there
}

}  // namespace souk
