// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/doctor.hpp"

#include <linux/sched.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "checkpoint/gpu_plugins.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {
namespace {

constexpr Nanos try_criu_ns_max = Nanos::from_s(30);
// on a tmpfs that only the namespaces of the trial see
constexpr const char* doctor_images = "/run/souk-doctor";
constexpr int job_socket = 3;

// The trial's job: sleep(1) with an unconnected UDP socket as descriptor 3. Nothing from outside
// the namespaces may stay open in it, and it is another program so that its executable too comes
// from inside. `ready` closes when it runs.
[[noreturn]] void be_the_job(int ready) {
    ::setsid();
    const int null = ::open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; ++i) ::dup2(null, i);
    const int high = ::fcntl(ready, F_DUPFD_CLOEXEC, 10);
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    if (socket >= 0 && socket != job_socket) ::dup2(socket, job_socket);
    ::dup3(high, job_socket + 1, O_CLOEXEC);
    ::close_range(job_socket + 2, ~0U, 0);
    if (socket >= 0) ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(::write(job_socket + 1, "x", 1) < 0);
}

// Loopback is up and /run is fresh: CRIU measures the kernel over the one and caches what it finds
// in the other.
Status furnish() {
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0)
        return fail_errno("make mounts private", errno);
    if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) < 0)
        return fail_errno("mount /proc", errno);
    if (::mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") < 0)
        return fail_errno("mount /run", errno);
    if (::mkdir(doctor_images, 0700) < 0) return fail_errno(doctor_images, errno);
    const Fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP;
    if (!any || ::ioctl(any.get(), SIOCSIFFLAGS, &request) < 0)
        return fail_errno("raise loopback", errno);
    return {};
}

// CRIU's first error is the cause, the later ones tell how it unwound.
std::string first_error_line(const std::string& log) {
    const auto text = read_file(AT_FDCWD, log);
    if (!text) return "it wrote no log";
    for (size_t at = text->find("Error ("); at != std::string::npos;
         at = text->find("Error (", at + 1)) {
        std::string line = text->substr(at, text->find('\n', at) - at);
        // CRIU cannot raise this limit without CAP_SYS_RESOURCE, and does not need to.
        if (line.find("RLIMIT_NOFILE") == std::string::npos) return line;
    }
    return "its log has no error";
}

// One command of CRIU to its end; its output goes to `VERB.out`, its log to `VERB.log` in the image
// directory.
Status run_criu(const CriuTool& tool, const std::string& verb,
                const std::vector<std::string>& more) {
    std::vector<std::string> words = tool.command;
    words.push_back(verb);
    if (verb != "--version") {
        const std::vector<std::string> common{"-D", doctor_images, "-o", verb + ".log",
                                              "--manage-cgroups=ignore"};
        words.insert(words.end(), common.begin(), common.end());
    }
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno("fork", errno);
    if (pid == 0) {
        const int out = ::open((std::string(doctor_images) + "/" + verb + ".out").c_str(),
                               O_WRONLY | O_CREAT, 0600);
        ::dup2(out, 1);
        ::dup2(out, 2);
        ::execv(argv[0], argv.data());
        ::_exit(127);
    }
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return fail("cannot start " + words[0]);
    return fail(verb + ": " + first_error_line(std::string(doctor_images) + "/" + verb + ".log"));
}

// Runs as PID 1 of the namespaces.
Result<std::string> trial(const CriuTool& tool) {
    // CRIU waits for signals that our caller may have blocked, and the job is to end by one.
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGTERM, SIG_DFL);
    TRY(furnish());
    TRY(run_criu(tool, "--version", {}));
    TRY_ASSIGN(const std::string text,
               read_file(AT_FDCWD, std::string(doctor_images) + "/--version.out"));
    const size_t at = text.find("Version: ");
    if (at == std::string::npos) return fail("it does not say its version");
    const std::string version = text.substr(at + 9, text.find('\n', at) - at - 9);

    TRY_ASSIGN(Pipe ready, make_pipe());
    const pid_t job = ::fork();
    if (job < 0) return fail_errno("fork", errno);
    if (job == 0) be_the_job(ready.write_end.get());
    ready.write_end.reset();
    char byte;
    if (::read(ready.read_end.get(), &byte, 1) != 0) return fail("the trial job did not start");
    int status = 0;
    TRY(run_criu(tool, "dump", {"-t", std::to_string(job)}));
    ::waitpid(job, &status, 0);
    TRY(run_criu(tool, "restore", {"-d"}));  // the job is now a child of this PID 1
    char socket[64] = {};
    const std::string link = "/proc/" + std::to_string(job) + "/fd/" + std::to_string(job_socket);
    if (::readlink(link.c_str(), socket, sizeof socket - 1) < 0 ||
        !std::string_view(socket).starts_with("socket:"))
        return fail("the restored job has lost its socket");
    if (::kill(job, SIGTERM) < 0 || ::waitpid(job, &status, 0) != job || !WIFSIGNALED(status))
        return fail("the restored job ended with status " + std::to_string(status));
    return version;
}

}  // namespace

Result<std::string> try_criu(const CriuTool& tool) {
    TRY_ASSIGN(Pipe answer, make_pipe());
    auto started = fork_into(CgroupEntry{}, CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET);
    if (!started) return wrap("namespaces for its trial", started.error());
    const Forked forked = std::move(*started);
    if (forked.is_child) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const auto result = trial(tool);
        const std::string text = result ? "+" + *result : "-" + result.error().message;
        // the namespace ends with its PID 1
        ::_exit(::write(answer.write_end.get(), text.data(), text.size()) < 0);
    }
    answer.write_end.reset();
    TRY_ASSIGN(const bool ended, forked.pidfd.exited_within(try_criu_ns_max));
    if (!ended) {
        TRY(forked.pidfd.signal(SIGKILL));
        TRY(forked.pidfd.exited_within(try_criu_ns_max));
    }
    if (const auto reaped = forked.pidfd.reap(); !reaped)
        return wrap("CRIU's trial", reaped.error());
    char text[1024];
    const ssize_t n = ::read(answer.read_end.get(), text, sizeof text);
    if (n < 1)
        return fail(ended ? "its trial ended without a word"
                          : "its trial took more than 30 seconds");
    const std::string message(text + 1, static_cast<size_t>(n) - 1);
    if (text[0] == '+') return message;
    return fail(message);
}

std::string settled_criu_root(const std::string& memory) {
    std::string own = installed_criu_root();
    if (own.empty()) return criu_root();
    const auto system = find_criu("/");
    struct stat file {};
    utsname kernel{};
    if (!system || ::stat(system->command[0].c_str(), &file) < 0 || ::uname(&kernel) < 0)
        return own;
    const std::string tried = std::string(kernel.release) + " " + system->command[0] + " " +
                              std::to_string(file.st_size) + " " +
                              std::to_string(file.st_mtim.tv_sec) + " ";
    const auto kept = read_file(AT_FDCWD, memory);
    if (kept && *kept == tried + "works") return "/";
    if (kept && *kept == tried + "fails") return own;
    const bool works = try_criu(*system).has_value();
    // Without the file the next start tries again.
    if (!memory.empty())
        (void)replace_file(memory, tried + (works ? "works" : "fails"), 0600, false);
    return works ? "/" : own;
}

std::vector<Need> examine(Examination depth, const std::string& criu_prefix) {
    std::vector<Need> needs = examine_kernel();
    Need criu{"CRIU", "freezing and moving jobs", true, false, "", ""};
    const auto tool = find_criu(criu_prefix);
    if (!tool) {
        criu.found = tool.error().message;
    } else if (depth == Examination::quick) {
        criu.met = true;
        criu.found = tool->command.back();
    } else if (const auto version = try_criu(*tool); version) {
        criu.met = true;
        criu.found = *version + " at " + tool->command.back() + ", dumps and restores";
    } else {
        criu.found = tool->command.back() + ": " + version.error().message;
    }
    if (!criu.met)
        criu.mend =
            tool && ::geteuid() != 0
                ? "run as root"
                : "apt install souk-criu, or make deps in a source tree (it fetches a CRIU that "
                  "works here)";
    needs.push_back(std::move(criu));
    for (Need& gpu : examine_gpus("", criu_prefix)) needs.push_back(std::move(gpu));
    return needs;
}

Status require_for_agent(const std::string& criu_prefix) {
    return require(examine(Examination::quick, criu_prefix));
}

}  // namespace souk
