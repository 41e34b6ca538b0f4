// SPDX-License-Identifier: GPL-2.0-or-later
// Describes what is submitted for each component, from the command line, the plan, --exec and
// --mpi.
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "tools/srun/gang.hpp"
#include "tools/srun/spec.hpp"

namespace souk::tools {
namespace {

// souk-exec lies beside srun, as all programs do that find each other.
std::string souk_exec_path() {
    char path[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
    const std::string own(path, n > 0 ? static_cast<size_t>(n) : 0);
    return own.substr(0, own.rfind('/') + 1) + "souk-exec";
}

// Draws PORT:SECRET, by which the components of one job know each other.
Result<std::string> draw_exec_secret() {
    unsigned char bytes[34];
    if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return fail_errno("draw a secret", errno);
    std::string text = std::to_string(20'000 + (bytes[32] << 8 | bytes[33]) % 10'000) + ":";
    for (int i = 0; i < 32; ++i)
        for (const int digit : {bytes[i] >> 4, bytes[i] & 15}) text += "0123456789abcdef"[digit];
    return text;
}

// mpirun starts its daemons by souk-exec, and keeps its files where they go along.
std::vector<std::string> mpirun(const SrunOptions& options) {
    std::string hosts;
    for (int32_t i = 0; i < options.components; ++i) {
        const auto at = static_cast<size_t>(i);
        const bool said = at < options.plan.size() && options.plan[at].cpus > 0;
        hosts += (hosts.empty() ? "c" : ",c") + std::to_string(i) + ":" +
                 std::to_string(said ? options.plan[at].cpus : options.terms.cpus);
    }
    return {"mpirun",
            "--mca",
            "plm_rsh_agent",
            souk_exec_path() + " --shell",
            "--mca",
            "orte_tmpdir_base",
            "/dev/shm",
            "--host",
            hosts};
}

// With --exec every component but the first waits for programs that the first one asks for.
void describe_exec(const SrunOptions& options, size_t component, LaunchWish& wish,
                   ComponentClass& role) {
    if (component > 0) {
        wish.argv = {souk_exec_path(), "--serve"};
        role = ComponentClass::interactive;
    } else if (options.mpi) {
        auto words = mpirun(options);
        wish.argv.insert(wish.argv.begin(), words.begin(), words.end());
    }
}

// Describes a component as the command line says, but for what its plan says otherwise.
Status describe(const SrunOptions& options, size_t component, const std::string& secret,
                wire::Submit& request) {
    request.terms = options.terms;
    const bool planned = component < options.plan.size();
    const ComponentPlan plan = planned ? options.plan[component] : ComponentPlan();
    LaunchWish wish{
        {options.program.begin(), options.program.end()}, plan.directory, plan.environment};
    if (!plan.program.empty()) wish.argv = {plan.program};
    if (plan.arguments) {
        wish.argv.resize(1);
        wish.argv.insert(wish.argv.end(), plan.arguments->begin(), plan.arguments->end());
    }
    request.group.role = plan.role;
    request.group.node = plan.node;
    request.group.spread = static_cast<uint32_t>(options.spread);
    request.group.pack = options.pack;
    request.group.near = options.near;
    request.group.near_trip_us = options.near_trip_us;
    request.group.near_mbit = options.near_mbit;
    if (options.exec) describe_exec(options, component, wish, request.group.role);
    // Nobody waits for it, so that its deadline is its own.
    if (request.group.role == ComponentClass::optional && request.terms.booking->promise)
        request.terms.booking.edit().promise = false;
    if (options.exec) wish.environment.emplace_back("SOUK_EXEC", secret);
    auto launch = capture_launch(wish);
    if (!launch)
        return plan.at.empty() ? tl::unexpected(launch.error()) : wrap(plan.at, launch.error());
    request.spec.launch = std::move(*launch);
    if (plan.cpus > 0) request.terms.cpus = plan.cpus;
    if (plan.memory_mb > 0) request.terms.memory_mb = plan.memory_mb;
    if (plan.time.ns > 0) {
        request.terms.limits.edit().run = plan.time;
        request.terms.limits.edit().at_speed = 0;
    }
    if (plan.cpu_time.ns > 0) request.terms.limits.edit().cpu = plan.cpu_time;
    if (options.detach || options.wait) {
        if (!plan.out_file.empty()) request.out_file = plan.out_file;
        if (!plan.err_file.empty()) request.err_file = plan.err_file;
    }
    return {};
}

int64_t cpus_of_all(const std::vector<wire::Submit>& requests) {
    int64_t all = 0;
    for (const wire::Submit& one : requests) all += one.terms.cpus;
    return all;
}

}  // namespace

Result<std::vector<wire::Submit>> describe_components(const SrunOptions& options,
                                                      const wire::Submit& common) {
    const auto count = static_cast<size_t>(options.components);
    std::vector<wire::Submit> requests(count, common);
    TRY_ASSIGN(const std::string secret, draw_exec_secret());
    std::string names;
    for (const std::string& name : component_names(options.plan, count))
        names += (names.empty() ? "" : ",") + name;
    for (size_t i = 0; i < count; ++i) {
        TRY(describe(options, i, secret, requests[i]));
        set_in_environment(requests[i].spec.launch.env, "SOUK_NAMES", names);
        requests[i].group.components = static_cast<uint32_t>(count);
        requests[i].group.component = static_cast<uint32_t>(i);
    }
    const int64_t all = cpus_of_all(requests);
    for (wire::Submit& one : requests) {
        TRY_ASSIGN(one.terms.budget, share_of_budget(options.terms.budget, one.terms.cpus, all));
    }
    return requests;
}

}  // namespace souk::tools
