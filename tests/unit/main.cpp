// SPDX-License-Identifier: GPL-2.0-or-later
// The runner. Check ends a failed test where it stands, without its destructors; so all tests run
// in a child, and when that has ended, however it did, this process removes what is left:
// directories, and processes that a test has started, which become its children then. Left behind
// by tests that all passed, it is a failure.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>
#include <vector>

#include "kernel/sys/host/fd.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

struct Named {
    const char* name;
    Suite* suite;
};

std::vector<Named>& suites() {
    // never destroyed: it holds what Check has allocated to the very end
    static auto& all = *new std::vector<Named>;
    return all;
}

void list_suites() {
    for (const Named& suite : suites()) std::puts(suite.name);
}

int run_all() {
    SRunner* runner = srunner_create(nullptr);
    for (const Named& named : suites()) srunner_add_suite(runner, named.suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

volatile sig_atomic_t child = 0;
void pass_on(int signal) { ::kill(child, signal); }

std::string name_of(pid_t pid) {
    auto name = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/comm");
    return name ? name->substr(0, name->find('\n')) : "";
}

std::vector<pid_t> children() {
    std::vector<pid_t> pids;
    const auto listed = read_file(AT_FDCWD, "/proc/thread-self/children");
    std::istringstream words(listed ? *listed : "");
    for (pid_t pid; words >> pid;) pids.push_back(pid);
    return pids;
}

// Guards of fixtures, which are forks of this program, end by themselves when their test has,
// within their own limit. What was killed may take a moment to end, as all of a capsule goes first.
// Whatever else lives was forgotten: it is killed, and named. All are killed before any is waited
// for: a capsule does not end while a CRIU outside still traces what is in it.
std::vector<std::string> end_children() {
    constexpr int tries_max = 1500, guard_tries = 1250, moment_tries = 50;  // of 20 ms
    const std::string own = name_of(::getpid());
    std::map<pid_t, std::string> forgotten;
    for (int tries = 0; tries < tries_max; ++tries) {
        const std::vector<pid_t> alive = children();
        if (alive.empty()) break;
        for (const pid_t pid : alive) {
            const std::string name = name_of(pid);
            if (::waitpid(pid, nullptr, WNOHANG) == pid || tries < moment_tries ||
                (name == own && tries < guard_tries))
                continue;
            forgotten[pid] = name;
            ::kill(pid, SIGKILL);
        }
        ::usleep(20'000);
    }
    std::vector<std::string> found;
    found.reserve(forgotten.size());
    for (const auto& [pid, name] : forgotten)
        found.push_back("process " + std::to_string(pid) + " (" + name + ")");
    return found;
}

int run_and_clean_up() {
    // The tests make and destroy solvers by the thousand. With the memory given back to the kernel
    // each time, half of the time is the kernel's, and far more on some hypervisors.
    ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
    ::mallopt(M_MMAP_THRESHOLD, 64 << 20);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::string& root = make_temp_root();
    child = ::fork();
    if (child == 0) {
        ::setpgid(0, 0);  // Check ends its whole process group with itself
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        std::exit(run_all());
    }
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, pass_on);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const bool passed = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS;
    std::vector<std::string> left = end_children();
    const auto entries = list_dir(AT_FDCWD, root);
    for (const std::string& entry : entries ? *entries : std::vector<std::string>{})
        left.push_back(root + "/" + entry);
    remove_temp_root();
    if (!passed) return EXIT_FAILURE;
    for (const std::string& what : left)
        std::fprintf(stderr, "left behind by a test that passed: %s\n", what.c_str());
    return left.empty() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

Registration::Registration(const char* name, std::initializer_list<const TTest*> tests,
                           double seconds_max) {
    Suite* suite = suite_create(name);
    TCase* tcase = tcase_create(name);
    // Whoever asks for more seeds than usual (tests/unit/seeds.hpp) sees how long they take.
    const bool many = std::getenv("SOUK_LIES") != nullptr;
    tcase_set_timeout(tcase, many ? 0 : seconds_max);
    const char* const only = std::getenv("SOUK_TEST");  // one test by its name
    for (const TTest* test : tests)
        if (!only || std::string_view(only) == test->name) tcase_add_test(tcase, test);
    suite_add_tcase(suite, tcase);
    suites().push_back({name, suite});
}

}  // namespace souk::unit

// --list prints the names of the suites, for who runs several at once (scripts/check).
int main(int argc, char** argv) {
    using namespace souk::unit;
    if (argc > 1 && std::string_view(argv[1]) == "--list") {
        list_suites();
        return EXIT_SUCCESS;
    }
    const char* fork = std::getenv("CK_FORK");
    if (!fork || std::string_view(fork) != "no") return run_and_clean_up();
    make_temp_root();  // under a debugger: all in this process
    const int status = run_all();
    remove_temp_root();
    return status;
}
