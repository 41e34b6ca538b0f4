// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/instance.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernel/base/fnv.hpp"

namespace souk {
namespace {

using json = nlohmann::json;

json to_json(const Daemon& d) {
    return {{"name", d.name},         {"address", d.address},
            {"netns", d.netns},       {"dir", d.dir},
            {"state", d.state},       {"cgroup", d.cgroup},
            {"pid", d.process.pid},   {"start", d.process.start_ticks},
            {"restarts", d.restarts}, {"trouble", d.trouble}};
}

Daemon daemon_from(const json& j) {
    Daemon d;
    d.name = j.at("name");
    d.address = j.at("address");
    d.netns = j.at("netns");
    d.dir = j.at("dir");
    d.state = j.at("state");
    d.cgroup = j.at("cgroup");
    d.process = {j.at("pid"), j.at("start")};
    d.restarts = j.at("restarts");
    d.trouble = j.at("trouble");
    return d;
}

}  // namespace

std::optional<ProcessId> process_of(pid_t pid) {
    const auto stat = read_proc_stat(pid);
    if (!stat || stat->state == 'Z' || stat->state == 'X') return std::nullopt;
    return ProcessId{pid, stat->start_ticks};
}

bool alive(const ProcessId& p) {
    if (p.pid <= 0) return false;
    const auto now = process_of(p.pid);
    return now && now->start_ticks == p.start_ticks;
}

Pidfd open_process(const ProcessId& p) {
    if (p.pid <= 0) return {};
    auto fd = Pidfd::open(p.pid);
    // looked at again with the pidfd held: it is this process or none
    if (!fd || !alive(p)) return {};
    return std::move(*fd);
}

namespace {
// Reads a directory from an environment variable and makes it absolute, because daemons run in
// another directory, where a relative name would mean something else.
std::string directory_of(const char* variable) {
    const char* text = std::getenv(variable);
    if (!text || !*text) return {};
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(text, error).lexically_normal();
    if (error) return text;
    return absolute.size() > 1 && absolute.ends_with('/') ? absolute.substr(0, absolute.size() - 1)
                                                          : absolute;
}
}  // namespace

std::string owner_program_name(const std::string& node) { return "owner-of-" + node; }

std::string owner_program(const Daemon& node) {
    return node.dir + "/" + owner_program_name(node.name);
}

std::string run_dir() {
    const std::string run = directory_of("SOUK_RUN");
    return run.empty() ? "/run/souk" : run;
}

std::string tag_of(const std::string& run) {
    if (run == "/run/souk") return "souk";
    char text[16];  // names only have to differ between the few markets of one host
    std::snprintf(text, sizeof text, "souk-%06x", fnv1a_32(run) & 0xffffff);
    return text;
}

std::string state_root(const std::string& run) {
    const std::string state = directory_of("SOUK_STATE");
    if (!state.empty()) return state;
    return run == "/run/souk" ? "/var/lib/souk/up" : "/var/lib/souk/" + tag_of(run);
}

Result<std::optional<Instance>> load_instance(const std::string& run) {
    const std::string path = run + "/instance.json";
    const auto text = read_file(AT_FDCWD, path);
    if (!text) {
        if (text.error().code == ENOENT || text.error().code == ENOTDIR) return std::nullopt;
        return tl::unexpected(text.error());
    }
    try {
        const json j = json::parse(*text);
        Instance i;
        i.run = run;
        i.tag = j.at("tag");
        i.state = j.value("state", state_root(run));
        i.supervisor = {j.at("supervisor").at("pid"), j.at("supervisor").at("start")};
        i.market = daemon_from(j.at("market"));
        for (const json& n : j.at("nodes")) i.nodes.push_back(daemon_from(n));
        return i;
    } catch (const json::exception&) {
        return fail(
            path +
            " is damaged: it is not a market's record. If no daemon of it runs any more, remove " +
            run);
    }
}

Status save_instance(const Instance& i) {
    json nodes = json::array();
    for (const Daemon& d : i.nodes) nodes.push_back(to_json(d));
    const json j = {
        {"tag", i.tag},
        {"state", i.state},
        {"supervisor", {{"pid", i.supervisor.pid}, {"start", i.supervisor.start_ticks}}},
        {"market", to_json(i.market)},
        {"nodes", nodes}};
    return replace_file(i.run + "/instance.json", j.dump(1) + "\n", 0644, false);
}

Result<Fd> lock_instance(const std::string& run) {
    TRY_ASSIGN(Fd fd, open_at(AT_FDCWD, run + "/lock", O_RDWR | O_CREAT, 0600));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
    if (errno == EWOULDBLOCK) return Fd{};
    return fail_errno("lock " + run + "/lock", errno);
}

}  // namespace souk
