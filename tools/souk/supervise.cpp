// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/supervise.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernel/base/check.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/installation.hpp"
#include "tools/souk/identities.hpp"
#include "tools/souk/network.hpp"
#include "tools/souk/private_files.hpp"

namespace souk {
namespace {

constexpr int market_port = 7070, agent_port = 7071;
constexpr Nanos ready_limit = Nanos::from_s(20), stop_limit = Nanos::from_s(10);
constexpr Nanos pause_min = Nanos::from_ms(100), pause_max = Nanos::from_s(5),
                settled_after = Nanos::from_s(10);
constexpr Nanos save_again = Nanos::from_s(5);

Nanos now() { return read_clock(CLOCK_BOOTTIME); }

// The last line of a daemon's log: why it would not start.
std::string last_line(const std::string& path) {
    std::ifstream in(path);
    std::string line, last;
    while (std::getline(in, line))
        if (!line.empty()) last = line;
    return last;
}

class Supervisor {
  public:
    Supervisor(const UpOptions& options, Fd lock) : options_(options), lock_(std::move(lock)) {}

    Status start();
    void watch();
    Instance& instance() { return instance_; }

  private:
    struct Child {
        Daemon* record = nullptr;
        const Netns* netns = nullptr;
        std::vector<std::string> argv;
        Fd files = {};  // make_private_files; none: this machine's
        bool ready = false;
        Pidfd process = {};  // as it was started; empty: it does not run
        Nanos started = {}, pause = pause_min, restart_at = Nanos::never();
    };

    Status prepare();
    Status write_configs();
    Status spawn(Child& child);
    void save();
    Status wait_ready(Child& child);
    void take_notifications();
    void reap();
    void poll_once(Nanos deadline);
    void stop_all();

    const UpOptions& options_;
    Fd lock_, signals_, notify_;
    Network network_;
    Instance instance_;
    std::vector<Child> children_;
    bool stopping_ = false;
    Nanos save_at_ = Nanos::never();  // the record could not be written: again then
};

Status Supervisor::prepare() {
    instance_.run = options_.run;
    instance_.tag = tag_of(options_.run);
    instance_.supervisor = process_of(::getpid()).value_or(ProcessId{});
    const std::string& state = instance_.state = options_.state;
    std::vector<std::string> names;
    for (const NodeOptions& n : options_.shape.nodes) names.push_back(n.name);
    instance_.market = {"market",
                        fabric_address() + ":" + std::to_string(market_port),
                        instance_.tag + "-fabric",
                        options_.run + "/market",
                        state + "/market",
                        "",
                        {},
                        0,
                        ""};
    for (size_t i = 0; i < names.size(); ++i)
        instance_.nodes.push_back({names[i],
                                   node_address(i) + ":" + std::to_string(agent_port),
                                   instance_.tag + "-" + names[i],
                                   options_.run + "/" + names[i],
                                   state + "/" + names[i],
                                   instance_.tag + "/" + names[i],
                                   {},
                                   0,
                                   ""});
    // before the first thing is made, so that `down` can always find it
    TRY(save_instance(instance_));
    try {
        std::filesystem::create_directories(instance_.market.dir);
        std::filesystem::create_directories(instance_.market.state);
        for (const Daemon& d : instance_.nodes) {
            std::filesystem::create_directories(d.dir);
            std::filesystem::create_directories(d.state);
        }
    } catch (const std::filesystem::filesystem_error& e) {
        return fail(e.what());
    }
    TRY(save_shape(state, options_.shape));
    TRY(make_identities(instance_));
    TRY(write_configs());
    TRY_ASSIGN(network_, create_network(instance_.tag, names));

    sigset_t set;
    sigemptyset(&set);
    for (const int s : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set, s);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return fail_errno("signalfd", errno);
    notify_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = options_.run + "/notify.sock";
    if (path.size() >= sizeof address.sun_path)
        return fail(options_.run + " is too long a path for sockets (100 bytes at most)");
    std::memcpy(address.sun_path, path.c_str(), path.size());
    ::unlink(path.c_str());
    const int on = 1;
    if (!notify_ ||
        ::bind(notify_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::setsockopt(notify_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        ::chmod(path.c_str(), 0666) != 0)  // a daemon may be anybody; who says it is looked at
        return fail_errno("bind " + path, errno);
    return {};
}

namespace {

// The load of this host is no sign that the owner of one node is back, because the other nodes'
// guests make it as well. A program of his own is (souk owner).
std::string owner_keys(const std::string& node, const std::string& owner_return) {
    return "owner_return = \"" + owner_return + "\"\nowner_programs = \"" +
           owner_program_name(node) +
           "\"\nowner_cpu_percent = 0\nowner_wait_ms = 0\nowner_stop_s = 0\nowner_leave_s = 5\n"
           "owner_away_s = 5\n";
}

// The kernel calls a program by the name under which it was started.
Status link_owner_program(const Daemon& node) {
    const std::string link = owner_program(node);
    (void)::unlink(link.c_str());
    if (::symlink("/bin/sleep", link.c_str()) != 0) return fail_errno(link, errno);
    return {};
}

}  // namespace

Status Supervisor::write_configs() {
    const auto write = [](const std::string& path, const std::string& text) {
        return create_file(AT_FDCWD, path, text, O_TRUNC, 0666);
    };
    const Daemon& m = instance_.market;
    std::string text = "listen = \"" + m.address + "\"\nsocket = \"" + m.dir +
                       "/marketd.sock\"\nstate = \"" + m.state + "\"\nnodes_operate = true\n";
    const MarketShape& shape = options_.shape;
    if (!shape.solver.empty()) text += "solver = \"" + shape.solver + "\"\n";
    if (!shape.pricing.empty()) text += "pricing = \"" + shape.pricing + "\"\n";
    TRY(write(m.dir + "/marketd.conf", text));
    for (size_t i = 0; i < instance_.nodes.size(); ++i) {
        const Daemon& d = instance_.nodes[i];
        const NodeOptions& n = shape.nodes[i];
        text = "node = \"" + d.name + "\"\nlisten = \"" + d.address + "\"\nmarket = \"" +
               m.address + "\"\nsocket = \"" + d.dir + "/agentd.sock\"\nstate = \"" + d.state +
               "\"\ncgroup = \"" + d.cgroup + "\"\nprice = \"" + n.price +
               "\"\nspeed = " + std::to_string(n.speed) + "\ncpus = " + std::to_string(shape.cpus) +
               "\ncpu_weight = " + std::to_string(n.speed) + "\n";
        text += "job_network = \"" + std::string(job_network) + "\"\njob_bridge = \"" + job_bridge +
                "\"\njob_gateway = \"" + job_gateway() + "\"\njob_addresses = \"" +
                job_addresses(i) + "\"\n";
        if (shape.memory_mb > 0) text += "memory_mb = " + std::to_string(shape.memory_mb) + "\n";
        text += "guest_uid_min = 0\n";  // one host: everybody is who he is on each node
        if (options_.check_precopy) text += "check_ahead = true\n";
        if (!shape.agent_user.empty()) text += "user = \"" + shape.agent_user + "\"\n";
        if (shape.private_files) text += "files = \"auto\"\n";
        if (!shape.owner_return.empty()) text += owner_keys(d.name, shape.owner_return);
        TRY(link_owner_program(d));
        TRY(write(d.dir + "/agentd.conf", text));
    }
    return {};
}

Status Supervisor::start() {
    TRY(prepare());
    const auto add = [&](Daemon& d, const Netns& netns, const std::string& program) -> Child& {
        return children_.emplace_back(Child{
            &d, &netns, {program_path(program), "--config", d.dir + "/" + program + ".conf"}});
    };
    add(instance_.market, network_.fabric, "marketd");
    const std::string programs = program_directory();
    const std::vector<std::string> kept = {instance_.run, instance_.state,
                                           programs.substr(0, programs.rfind('/')), criu_root()};
    for (size_t i = 0; i < instance_.nodes.size(); ++i) {
        Child& c = add(instance_.nodes[i], network_.nodes[i], "agentd");
        if (!options_.shape.private_files || i == 0) continue;
        TRY_ASSIGN(c.files, make_private_files(c.record->state + "/files", kept));
    }
    for (Child& c : children_) TRY(spawn(c));
    for (Child& c : children_) TRY(wait_ready(c));
    return {};
}

// A RUN that is full for a moment changes nothing of what runs.
void Supervisor::save() {
    const Status saved = save_instance(instance_);
    if (!saved && save_at_ == Nanos::never())
        (void)!::dprintf(STDERR_FILENO,
                         "the record of what runs cannot be written, and is written later: %s\n",
                         saved.error().message.c_str());
    save_at_ = saved ? Nanos::never() : now() + save_again;
}

// An error says that nothing was started.
Status Supervisor::spawn(Child& c) {
    const std::string log = c.record->dir + "/log";
    TRY_ASSIGN(Fd out, open_at(AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0640));
    const std::string socket = "NOTIFY_SOCKET=" + options_.run + "/notify.sock";
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno("fork", errno);
    if (pid == 0) {
        ::dup2(out.get(), STDOUT_FILENO);
        ::dup2(out.get(), STDERR_FILENO);
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::setsid();
        if (c.files && ::setns(c.files.get(), CLONE_NEWNS) != 0) ::_exit(126);
        if (!enter(*c.netns)) ::_exit(126);
        std::vector<char*> argv;
        for (std::string& a : c.argv) argv.push_back(a.data());
        argv.push_back(nullptr);
        ::putenv(const_cast<char*>(socket.c_str()));
        ::execv(argv[0], argv.data());
        (void)!::write(STDERR_FILENO, "cannot be executed\n", 19);
        ::_exit(127);
    }
    // Our child, and not reaped yet: the number is its own until then.
    auto held = Pidfd::open(pid);
    if (!held) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        return tl::unexpected(held.error());
    }
    c.process = std::move(*held);
    c.record->process = process_of(pid).value_or(ProcessId{pid, 0});
    c.ready = false;
    c.started = now();
    c.restart_at = Nanos::never();
    save();
    return {};
}

Status Supervisor::wait_ready(Child& c) {
    const Nanos limit = now() + ready_limit;
    while (!c.ready && !stopping_) {
        if (c.restart_at != Nanos::never())
            return fail((c.record->name == "market" ? "marketd" : "agentd of " + c.record->name) +
                        " did not start: " + last_line(c.record->dir + "/log"));
        if (now() >= limit)
            return fail(c.record->name + " was not ready within 20 s; see " + c.record->dir +
                        "/log");
        poll_once(limit);
    }
    return stopping_ ? Status(fail("stopped while it came up")) : Status{};
}

void Supervisor::take_notifications() {
    for (;;) {
        char text[512];
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
        iovec part{text, sizeof text};
        msghdr m{};
        m.msg_iov = &part;
        m.msg_iovlen = 1;
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        const ssize_t n = ::recvmsg(notify_.get(), &m, MSG_CMSG_CLOEXEC);
        if (n < 0) return;
        const cmsghdr* c = CMSG_FIRSTHDR(&m);
        if (!c || c->cmsg_type != SCM_CREDENTIALS) continue;
        ucred who;
        std::memcpy(&who, CMSG_DATA(c), sizeof who);
        if (std::string_view(text, static_cast<size_t>(n)).find("READY=1") ==
            std::string_view::npos)
            continue;
        for (Child& child : children_)
            if (child.process && child.process.pid() == who.pid) {
                child.ready = true;
                child.record->trouble.clear();
                save();
            }
    }
}

void Supervisor::reap() {
    for (;;) {
        int status = 0;
        const pid_t pid = ::waitpid(-1, &status, WNOHANG);
        if (pid <= 0) return;
        for (Child& c : children_) {
            if (!c.process || c.process.pid() != pid) continue;
            c.process = {};
            c.record->process = {};
            c.record->trouble = WIFSIGNALED(status)
                                    ? "killed by signal " + std::to_string(WTERMSIG(status))
                                    : "exited with status " + std::to_string(WEXITSTATUS(status));
            if (now() - c.started > settled_after) c.pause = pause_min;
            c.restart_at = now() + c.pause;
            c.pause = std::min(Nanos{c.pause.ns * 2}, pause_max);
            save();
        }
    }
}

// Waits for a signal, a notification or the deadline; starts again what is due.
void Supervisor::poll_once(Nanos deadline) {
    deadline = std::min(deadline, save_at_);
    for (const Child& c : children_) deadline = std::min(deadline, c.restart_at);
    int timeout = -1;
    if (deadline != Nanos::never())
        timeout = static_cast<int>(std::max<int64_t>(0, (deadline - now()).ns / 1'000'000 + 1));
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {notify_.get(), POLLIN, 0}};
    ::poll(fds, 2, timeout);
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) stopping_ = true;
    take_notifications();
    reap();
    if (save_at_ <= now()) save();
}

void Supervisor::watch() {
    while (!stopping_) {
        poll_once(Nanos::never());
        for (Child& c : children_) {
            if (stopping_ || c.restart_at > now()) continue;
            ++c.record->restarts;
            if (auto again = spawn(c); !again) {
                c.record->trouble = again.error().message;
                c.restart_at = now() + c.pause;
            }
        }
    }
    stop_all();
}

void Supervisor::stop_all() {
    for (const Child& c : children_)
        if (c.process) (void)c.process.signal(SIGTERM);
    const auto running = [&] {
        return std::any_of(children_.begin(), children_.end(),
                           [](const Child& c) { return bool(c.process); });
    };
    for (const bool last : {false, true}) {
        const Nanos limit = now() + stop_limit;
        while (running() && now() < limit) {
            for (Child& c : children_) c.restart_at = Nanos::never();
            poll_once(limit);
        }
        for (const Child& c : children_)
            if (!last && c.process) (void)c.process.signal(SIGKILL);
    }
}

}  // namespace

int supervise(const UpOptions& options, Fd lock, Fd report) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    ::prctl(PR_SET_NAME, "souk-supervise");
    ::signal(SIGPIPE, SIG_IGN);
    Supervisor s(options, std::move(lock));
    const Status started = s.start();
    const std::string line = started ? "ok\n" : started.error().message + "\n";
    std::vector<std::string> note;
    const auto take_down = [&](bool with_state) {
        demolish(s.instance(), note);
        if (with_state) remove_state(s.instance(), note);
        for (const std::string& text : note) (void)!::dprintf(STDERR_FILENO, "%s\n", text.c_str());
    };
    if (!started) {
        take_down(!options.again);
        (void)!::write(report.get(), line.data(), line.size());
        return 1;
    }
    // Whoever ended `souk up` before it was up does not want a market.
    const bool wanted =
        ::write(report.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
    if (wanted) {
        report.reset();
        s.watch();
    }
    take_down(!wanted && !options.again);
    return note.empty() ? 0 : 1;
}

}  // namespace souk
