// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketsim/gnuplot.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "market/sim/files.hpp"

namespace souk::tools {
namespace {

Status run(std::initializer_list<const char*> arguments) {
    std::vector<char*> argv;
    for (const char* a : arguments) argv.push_back(const_cast<char*>(a));
    argv.push_back(nullptr);
    pid_t pid = 0;
    if (const int code = posix_spawnp(&pid, argv[0], nullptr, nullptr, argv.data(), environ);
        code != 0)
        return fail_errno("start gnuplot", code);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return fail_errno("wait for gnuplot", errno);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return fail("gnuplot failed");
    return {};
}

}  // namespace

Status find_gnuplot() {
    const char* const named = ::getenv("PATH");
    const std::string path = named ? named : "/usr/bin:/bin";
    for (size_t from = 0; from <= path.size();) {
        const size_t end = std::min(path.find(':', from), path.size());
        if (::access((path.substr(from, end - from) + "/gnuplot").c_str(), X_OK) == 0) return {};
        from = end + 1;
    }
    return fail("--plot needs gnuplot, which is not installed: apt-get install gnuplot-nox");
}

Status gnuplot(const std::string& picture,
               const std::function<std::string(const std::string& output)>& script) {
    const std::string unique = picture + ".tmp." + std::to_string(::getpid());
    const std::string commands = unique + ".gnuplot", drawn = unique + ".drawn";
    sim::OutputFiles file;
    TRY(file.add(commands, script(drawn)));
    TRY(file.commit());
    Status done = run({"gnuplot", commands.c_str()});
    ::unlink(commands.c_str());
    if (done && std::rename(drawn.c_str(), picture.c_str()) != 0)
        done = fail_errno("rename", errno);
    if (done) return {};
    ::unlink(drawn.c_str());
    return wrap(picture, std::move(done).error());
}

}  // namespace souk::tools
