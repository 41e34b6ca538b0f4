// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/helper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "agentd/root/port_client.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk::root {
namespace {

// At its start souk-root may have to hand over the files of years.
constexpr Nanos start_limit = Nanos::from_s(60), answer_limit = Nanos::from_s(30);

// Words of souk-root (agentd/root/program).
void add_rules(std::vector<std::string>& words, const who::Rules& rules) {
    std::string groups;
    for (const std::string& name : rules.groups) groups += name + " ";
    words.insert(words.end(), {rules.node,
                               rules.any       ? "any"
                               : rules.accepts ? "accepted"
                                               : "required",
                               rules.root_jobs ? "1" : "0", std::to_string(rules.id_min), groups});
}

void add_network(std::vector<std::string>& words, const std::optional<JobNetwork>& network) {
    if (!network) return (void)words.insert(words.end(), 3, "");
    words.insert(words.end(), {network->bridge, network->range.text(),
                               network->gateway ? network->gateway.text() : ""});
}

// The other end.
Result<Fd> packets_to(Fd& ours) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail_errno("socketpair", errno);
    ours = Fd(ends[0]);
    return Fd(ends[1]);
}

}  // namespace

Status Helper::start(const std::string& criu, const std::string& status_file,
                     const std::optional<Own>& own) {
    std::vector<std::string> words = {criu, status_file};
    if (own) {
        user_ = own->user;
        configuration_ = own->configuration;
        users_ = own->users;
        words.insert(words.end(), {configuration_, users_, std::to_string(user_.uid),
                                   std::to_string(user_.gid), own->place.state, own->place.identity,
                                   own->place.cgroup, std::to_string(own->place.ram_mb)});
        add_rules(words, own->rules);
        add_network(words, own->network);
    }
    {
        TRY_ASSIGN(const Fd theirs, packets_to(socket_));
        TRY_ASSIGN(const Fd theirs_too, packets_to(door_));
        std::vector<int> fds = {theirs.get()};
        if (own) fds.insert(fds.end(), {own->tools, theirs_too.get()});
        TRY_ASSIGN(process_, start_program("souk-root", words, fds, false));
    }
    const auto begun = hear(start_limit);
    if (!begun || begun->refused)
        return wrap("souk-root does not begin", begun ? *begun->refused : begun.error());
    TRY_ASSIGN(exit_, loop_.on_exit(process_.get(), [this] { give_up("it has ended"); }));
    return {};
}

Result<Helper::Answer> Helper::hear(Nanos wait_max) const {
    const Nanos limit = monotonic_now() + wait_max;
    std::string room(why_bytes_max + 64, '\0');
    for (;;) {
        TRY_ASSIGN(auto packet, receive_descriptors(socket_.get(), room));
        if (packet) {
            if (packet->bytes == 0 || packet->truncated) return fail_errno("souk-root", EPIPE);
            TRY_ASSIGN(const Told told, parse_told(std::string_view(room.data(), packet->bytes)));
            if (const auto* const no = std::get_if<Refused>(&told))
                return Answer{{}, Error{no->code, no->why}, false, {}};
            const auto* const started = std::get_if<Started>(&told);
            const auto* const done = std::get_if<Done>(&told);
            return Answer{started ? *started : Started{},
                          {},
                          done == nullptr || done->yes,
                          std::move(packet->descriptors)};
        }
        pollfd p{socket_.get(), POLLIN, 0};
        const int64_t left_ms = (limit - monotonic_now()).ns / 1'000'000;
        if (left_ms <= 0) return fail_errno("souk-root", ETIMEDOUT);
        if (::poll(&p, 1, static_cast<int>(left_ms)) < 0 && errno != EINTR)
            return fail_errno("poll", errno);
    }
}

Result<Helper::Answer> Helper::ask(const Asked& asked, const std::vector<int>& fds, size_t wanted) {
    if (!socket_) return fail("souk-root is gone");
    const std::string packet = pack(asked);
    if (packet.size() > packet_bytes_max) return fail("too much for one request to souk-root");
    const auto sent = send_descriptors(socket_.get(), packet, fds);
    if (!sent || !*sent) {
        // Others (EMSGSIZE, ETOOMANYREFS) are of this request alone.
        const Error why = sent ? Error{EAGAIN, "it takes no request"} : sent.error();
        if (sent || why.code == EPIPE || why.code == ECONNRESET) give_up(why.message);
        return wrap("ask souk-root", why);
    }
    auto answer = hear(answer_limit);
    const bool starts = std::holds_alternative<StartProgram>(asked) ||
                        std::holds_alternative<MakeCapsule>(asked) ||
                        std::holds_alternative<StartCriu>(asked);
    // A late answer may be on its way, and another request would get it, so no request can be made
    // any more.
    if (!answer && (answer.error().code == ETIMEDOUT || answer.error().code == EPIPE))
        give_up(answer.error().message);
    if (answer && answer->refused) return tl::unexpected(*answer->refused);
    if (answer && (answer->descriptors.size() != wanted || (answer->started.pid > 0) != starts)) {
        give_up("it answers another question");
        return fail("souk-root: not what was asked for");
    }
    return answer;
}

void Helper::give_up(const std::string& why) {
    exit_.close();
    socket_.reset();
    if (const Lost lost = std::exchange(lost_, nullptr)) lost(why);
}

Result<Pidfd> Helper::program(Program program, const std::vector<std::string>& words,
                              const std::vector<int>& fds, bool session) {
    TRY_ASSIGN(Answer answer, ask(StartProgram{program, words, session}, fds, 1));
    return Pidfd(std::move(answer.descriptors[0]), answer.started.pid);
}

EndProgram Helper::end() {
    return [this](const Pidfd& one) { (void)ask(EndProcess{}, {one.get()}, 0); };
}

Result<Capsule> Helper::capsule(const CapsuleOptions& o, bool own, std::string_view ticket) {
    std::vector<int> fds = {o.dir};
    if (o.fuse >= 0) fds.insert(fds.end(), {o.fuse, o.slots});
    if (o.cgroup >= 0) fds.push_back(o.cgroup);
    fds.insert(fds.end(), o.cgroup_v1.begin(), o.cgroup_v1.end());
    const MakeCapsule asked{.own_net = o.own_net,
                            .private_tmp = o.private_tmp,
                            .check_access = o.check_access,
                            .home_tree = o.home_tree,
                            .hosts = o.hosts,
                            .files = o.fuse >= 0,
                            .cgroup = o.cgroup >= 0,
                            .own = own,
                            .user = o.user,
                            .ticket = std::string(ticket),
                            .laid_over = o.laid_over,
                            .hidden = o.hidden,
                            .run_keep = o.run_keep};
    TRY_ASSIGN(Answer answer, ask(asked, fds, 2));
    const ProcessId id{answer.started.pid, answer.started.start_ticks};
    return Capsule(id, Pidfd(std::move(answer.descriptors[0]), id.pid),
                   std::move(answer.descriptors[1]));
}

Result<Pidfd> Helper::criu(const CriuLaunch& how) {
    std::vector<int> fds = {how.capsule, how.socket, how.images};
    const bool restores = how.ended < 0;
    if (!restores) fds.push_back(how.ended);
    if (how.cgroup >= 0) fds.push_back(how.cgroup);
    fds.insert(fds.end(), how.job_ends.begin(), how.job_ends.end());
    fds.insert(fds.end(), how.cgroup_v1.begin(), how.cgroup_v1.end());
    const StartCriu asked{restores, how.cgroup >= 0, how.user.limited,
                          static_cast<uint8_t>(how.job_ends.size())};
    TRY_ASSIGN(Answer answer, ask(asked, fds, 1));
    return Pidfd(std::move(answer.descriptors[0]), answer.started.pid);
}

std::function<bool(const Pidfd&)> Helper::criu_loaded() {
    return [this](const Pidfd& criu) {
        const auto answer = ask(AskLoaded{}, {criu.get()}, 0);
        return answer && answer->yes;
    };
}

Result<std::vector<SeenProcess>> Helper::look(const Pidfd& init, const std::vector<pid_t>& pids,
                                              const LookFor& what) {
    if (pids.empty()) return std::vector<SeenProcess>{};
    TRY_ASSIGN(const Answer answer, ask(LookInside{what, pids}, {init.get()}, 1));
    constexpr size_t look_bytes_max = 256 << 20;
    TRY_ASSIGN(const std::string text,
               read_whole(answer.descriptors[0].get(), "a look at processes", look_bytes_max));
    TRY_ASSIGN(auto look, decode_look(text));
    if (look.size() != pids.size()) return fail("a look at other processes");
    return look;
}

// Asks for as many files at once as a packet takes. souk-root refuses all of them if one process
// has ended; then we ask one by one.
std::vector<Fd> Helper::open_files(const std::vector<pid_t>& pids, ProcessFile file) {
    std::vector<Fd> all;
    for (size_t from = 0; from < pids.size(); from += descriptors_max) {
        const size_t count = std::min(descriptors_max, pids.size() - from);
        std::vector<Pidfd> processes(count);
        std::vector<int> fds;
        for (size_t i = 0; i < count; ++i) {
            if (auto process = Pidfd::open(pids[from + i])) processes[i] = std::move(*process);
            fds.push_back(processes[i].get());
        }
        auto together = ask(OpenFile{file}, fds, count);
        for (size_t i = 0; i < count; ++i) {
            if (together) {
                all.push_back(std::move(together->descriptors[i]));
                continue;
            }
            auto alone = processes[i] ? ask(OpenFile{file}, {fds[i]}, 1)
                                      : Result<Answer>(fail("it has ended"));
            all.push_back(alone ? std::move(alone->descriptors[0]) : Fd());
        }
    }
    return all;
}

Reach Helper::reach() {
    const auto one = [this](const Asked& asked, const Pidfd& process) -> Result<Fd> {
        TRY_ASSIGN(Answer answer, ask(asked, {process.get()}, 1));
        return std::move(answer.descriptors[0]);
    };
    return {
        .open = [this](const std::vector<pid_t>& pids,
                       ProcessFile file) { return open_files(pids, file); },
        .take = [one](const Pidfd& p,
                      int number) { return one(TakeDescriptor{static_cast<uint32_t>(number)}, p); },
        .port = [this](const Pidfd& init, const std::optional<JobNetwork>&,
                       const PortPlan& plan) { return open_port(*this, init, plan); },
        .mend = [this](const Pidfd& process, int number) -> Result<bool> {
            TRY_ASSIGN(const Answer done,
                       ask(EndRepair{static_cast<uint32_t>(number)}, {process.get()}, 0));
            return done.yes;
        },
        .settle = [this](int image, bool runs) -> Status {
            TRY_ASSIGN([[maybe_unused]] const Answer done, ask(SettleSockets{runs}, {image}, 0));
            return {};
        },
        .inside = [this](const Pidfd& init, CapsuleDirectory which) -> Result<Fd> {
            TRY_ASSIGN(Answer answer, ask(OpenDirectory{which}, {init.get()}, 1));
            return std::move(answer.descriptors[0]);
        },
        .connect = [this](const Pidfd& init, int dir) -> Result<Fd> {
            TRY_ASSIGN(Answer answer, ask(ConnectInit{}, {init.get(), dir}, 1));
            return std::move(answer.descriptors[0]);
        },
        .end = end(),
        .give = [this](int dir) -> Status {
            if (!user_) return {};
            TRY_ASSIGN([[maybe_unused]] const Answer done, ask(GiveFiles{}, {dir}, 0));
            return {};
        },
        .look = [this](const Pidfd& init, const std::vector<pid_t>& pids,
                       const LookFor& what) { return look(init, pids, what); },
        .fit = [this](const Pidfd& init, const RestoredJob& job) -> Status {
            FitRestored asked{job.pids, {}};
            for (const auto& [resource, most] : job.limits)
                asked.limits.emplace_back(static_cast<uint8_t>(resource), most);
            TRY_ASSIGN([[maybe_unused]] const Answer done, ask(asked, {init.get()}, 0));
            return {};
        },
        .waits = [this](const Pidfd& init) -> Result<bool> {
            TRY_ASSIGN(const Answer done, ask(AskWaits{}, {init.get()}, 0));
            return done.yes;
        }};
}

Result<std::string> Helper::read(const std::string& path) {
    constexpr size_t bytes_max = 16 << 20;
    if (path.empty() || (path != configuration_ && path != users_))
        return read_file(AT_FDCWD, path);
    const OwnFile file = path == users_ ? OwnFile::users : OwnFile::configuration;
    TRY_ASSIGN(const Answer answer, ask(OpenOwnFile{file}, {}, 1));
    return read_whole(answer.descriptors[0].get(), path, bytes_max);
}

OpenDevice Helper::devices() {
    return [this](Device which) -> Result<Fd> {
        TRY_ASSIGN(Answer answer, ask(OpenOfMachine{which}, {}, 1));
        return std::move(answer.descriptors[0]);
    };
}

OpenCpuEvent Helper::cpu_events() {
    return [this](size_t cpu, Nanos every) -> Result<Fd> {
        if (cpu >= cpus_most) return fail_errno("open an event of a CPU", EINVAL);
        const OpenEvent asked{static_cast<uint16_t>(cpu), static_cast<uint32_t>(every.ns / 1'000)};
        TRY_ASSIGN(Answer answer, ask(asked, {}, 1));
        return std::move(answer.descriptors[0]);
    };
}

Status Helper::keep_packets(const std::vector<int>& programs) {
    TRY_ASSIGN([[maybe_unused]] const Answer done,
               ask(KeepPackets{!programs.empty()}, programs, 0));
    return {};
}

SeePackets Helper::see_packets() {
    return [this]() -> Result<std::vector<Fd>> {
        TRY_ASSIGN(Answer answer, ask(SeePacketsOfAll{}, {}, 2));
        return std::move(answer.descriptors);
    };
}

WatchInputs Helper::inputs() {
    return [this](int inotify, bool pseudo) -> Result<std::vector<WatchedInput>> {
        constexpr size_t bytes_max = 4 << 20;
        TRY_ASSIGN(const Answer answer, ask(AddInputs{pseudo}, {inotify}, 1));
        TRY_ASSIGN(const std::string text,
                   read_whole(answer.descriptors[0].get(), "input devices", bytes_max));
        std::vector<WatchedInput> all;
        for (std::string_view rest = text; !rest.empty();) {
            const size_t end = std::min(rest.find('\n'), rest.size());
            const std::string_view line = rest.substr(0, end);
            const size_t blank = std::min(line.find(' '), line.size());
            const auto number = whole_number<int>(line.substr(0, blank));
            if (number && blank < line.size())
                all.push_back({*number, std::string(line.substr(blank + 1))});
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        return all;
    };
}

std::function<Status(const Pidfd& init)> Helper::learn() {
    return [this](const Pidfd& init) -> Status {
        TRY_ASSIGN([[maybe_unused]] const Answer done, ask(LearnKernel{}, {init.get()}, 0));
        return {};
    };
}

// Sends as many users at once as a packet takes.
Status Helper::adopt(const std::vector<RunsAs>& users) {
    constexpr size_t numbers_max = packet_bytes_max / 8;
    AdoptUsers asked;
    size_t numbers = 0;
    const auto send = [&](bool more) -> Status {
        asked.more = more;
        TRY_ASSIGN([[maybe_unused]] const Answer done, ask(asked, {}, 0));
        asked.users.clear();
        numbers = 0;
        return {};
    };
    for (const RunsAs& one : users) {
        const size_t its = 3 + one.groups.size();
        if (asked.users.size() == adopted_max || numbers + its > numbers_max) TRY(send(true));
        asked.users.push_back(one);
        numbers += its;
    }
    return send(false);
}

Status Helper::put_status(std::string_view text) {
    TRY_ASSIGN([[maybe_unused]] const Answer done, ask(PutStatus{std::string(text)}, {}, 0));
    return {};
}

}  // namespace souk::root
