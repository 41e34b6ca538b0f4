// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/starter.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>

#include "agentd/root/descriptors.hpp"
#include "agentd/root/files_words.hpp"
#include "kernel/sys/host/cpu_event.hpp"
#include "kernel/sys/host/input_watch.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/host/status_file.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/net/tcp_repair.hpp"
#include "kernel/sys/process/bounded_work.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/packet_sight.hpp"
#include "kernel/sys/process/pids.hpp"
#include "kernel/sys/process/process.hpp"
#include "kernel/sys/process/program.hpp"
#include "kernel/sys/store/linkless.hpp"

namespace souk::root {
namespace {

// These limit a look at processes that run, and work where another machine may be asked.
constexpr Nanos running_limit = Nanos::from_s(2), others_limit = Nanos::from_s(10);

tl::unexpected<Error> no_user() {
    return fail("a capsule of an older version, which does not say whose it is");
}

Starter::Answer answer_with(Fd fd) {
    Starter::Answer done{Done{}, {}};
    done.descriptors.push_back(std::move(fd));
    return done;
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// requests

Result<Starter::Answer> Starter::start(const StartProgram& asked, const std::vector<int>& fds) {
    constexpr std::array names = {"souk-handshake", "souk-inspect", "souk-files"};
    const char* const name = names[static_cast<size_t>(asked.program) - 1];
    if (const FilesUser user = files_user(asked.words); user.as.known)
        TRY(user.owns ? who_.may_own(user.as) : who_.may_serve(user.as));
    // The store runs as the user to whom that directory belongs, and keeps nothing there that it
    // does not know.
    if (asked.program == Program::files && asked.words[0] == "store")
        TRY(check_own(fds[0], "the store of contents", user_));
    if (asked.program == Program::files && asked.words[0] == "sync") TRY(capsules_.init(fds[1]));
    TRY_ASSIGN(const Pidfd process, start_program(name, asked.words, fds, asked.session));
    TRY_ASSIGN(Fd pidfd, duplicate(process.get()));
    Answer done{Started{process.pid(), 0}, {}};
    done.descriptors.push_back(std::move(pidfd));
    return done;
}

Result<Starter::Answer> Starter::start(const MakeCapsule& asked, const std::vector<int>& fds) {
    if (user_ && asked.user.uid == user_.uid) return fail("agentd itself has no jobs");
    TRY(asked.own ? who_.may_own(asked.user) : who_.may_come(asked.user, asked.ticket));
    size_t at = 0;
    CapsuleOptions options;
    options.user = asked.user;
    options.dir = fds[at++];
    TRY(check_own(options.dir, "the directory of a capsule", user_));
    if (asked.files) {
        options.fuse = fds[at++];
        options.slots = fds[at++];
        TRY(check_fuse(options.fuse));
        TRY(check_kind(options.slots, S_IFREG, "a table of requests"));
    }
    if (asked.cgroup)
        TRY(check_group(options.cgroup = fds[at++], CGROUP2_SUPER_MAGIC, S_IFDIR, user_));
    TRY_ASSIGN(const auto v1, reopen_v1(std::span(fds).subspan(at), user_));
    options.cgroup_v1 = numbers_of(v1);
    options.init_path = program_path("souk-init");
    options.own_net = asked.own_net;
    options.private_tmp = asked.private_tmp;
    options.check_access = asked.check_access;
    options.home_tree = asked.home_tree;
    options.hosts = asked.hosts;
    options.laid_over = asked.laid_over;
    options.hidden = asked.hidden;
    options.run_keep = asked.run_keep;
    TRY_ASSIGN(Capsule capsule, Capsule::spawn(options));
    who_.is_here(asked.user);
    TRY(capsules_.made(capsule.pidfd()));
    TRY(capsules_.lies_in(capsule.pidfd(), options.dir));
    TRY_ASSIGN(Fd pidfd, duplicate(capsule.pidfd().get()));
    Answer done{Started{capsule.id().pid, capsule.id().start_ticks}, {}};
    done.descriptors.push_back(std::move(pidfd));
    done.descriptors.push_back(capsule.take_connection());
    return done;
}

Result<Starter::Answer> Starter::start(const StartCriu& asked, const std::vector<int>& fds) {
    size_t at = 0;
    CriuLaunch how;
    how.capsule = fds[at++];
    how.socket = fds[at++];
    how.images = fds[at++];
    TRY_ASSIGN(const Pidfd init, capsules_.init(how.capsule));
    TRY(capsules_.may_have_criu(init));
    TRY(check_packets(how.socket));
    TRY(check_own(how.images, "the directory of an image", user_));
    // CRIU is root, and follows what it finds there.
    Fd plain;
    if (user_ && !is_linkless(how.images)) {
        TRY_ASSIGN(plain, linkless(how.images));
        how.images = plain.get();
    }
    if (!asked.restores) TRY(check_kind(how.ended = fds[at++], S_IFSOCK, "a closed stream"));
    if (asked.cgroup) TRY(check_group(how.cgroup = fds[at++], CGROUP2_SUPER_MAGIC, S_IFDIR, user_));
    for (size_t i = 0; i < asked.ends; ++i) {
        TRY(check_end(fds[at]));
        how.job_ends.push_back(fds[at++]);
    }
    TRY_ASSIGN(const auto v1, reopen_v1(std::span(fds).subspan(at), user_));
    how.cgroup_v1 = numbers_of(v1);
    TRY_ASSIGN(const RunsAs as, capsule_user(init));
    if (asked.restores && !as.known) return no_user();
    how.user = {as.uid, as.gid, as.groups};
    how.user.limited = asked.limited;
    if (!criu_) return tl::unexpected(criu_.error());
    TRY(lay_out_run(init, asked.restores, criu_facts_));
    TRY_ASSIGN(const Fd locks, locks_.open(capsules_.directory(init), as.uid));
    how.locks = locks.get();
    TRY_ASSIGN(const Pidfd process, launch_criu(criu_->command, criu_->preload.get(), how));
    if (auto known = capsules_.has_criu(init, process, asked.restores); !known) {
        (void)process.signal(SIGKILL);
        return tl::unexpected(known.error());
    }
    TRY_ASSIGN(Fd pidfd, duplicate(process.get()));
    Answer done{Started{process.pid(), 0}, {}};
    done.descriptors.push_back(std::move(pidfd));
    return done;
}

Result<Starter::Answer> Starter::start(const OpenFile& asked, const std::vector<int>& fds) {
    Answer done{Done{}, {}};
    for (const int pidfd : fds) {
        TRY_ASSIGN(const Inside process, capsules_.process_of_job(pidfd));
        TRY_ASSIGN(Fd own, duplicate(pidfd));
        TRY_ASSIGN(Fd file, open_process_file(Pidfd(std::move(own), process.here), asked.file));
        done.descriptors.push_back(std::move(file));
    }
    return done;
}

// Takes the descriptors that souk-init keeps of the mount of its files.
Result<Starter::Answer> Starter::start(const TakeDescriptor& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Inside process, capsules_.process(fds[0]));
    const int number = static_cast<int>(asked.number);
    if (process.inside != 1) return fail("a job keeps that to itself");
    if (number != SOUK_FILES_FD && number != SOUK_FILES_FD + 1)
        return fail("souk-init keeps that to itself");
    TRY_ASSIGN(Fd own, duplicate(fds[0]));
    TRY_ASSIGN(Fd taken, take_descriptor(Pidfd(std::move(own), process.here), number));
    if (number == SOUK_FILES_FD) TRY(check_fuse(taken.get()));
    return answer_with(std::move(taken));
}

// The sockets may lie in directories that are another machine's.
Result<Starter::Answer> Starter::start(const SettleSockets& asked,
                                       const std::vector<int>& fds) const {
    TRY(check_own(fds[0], "the directory of an image", user_));
    if (!has_kept_sockets(fds[0])) return Answer{Done{}, {}};
    TRY(done_within(others_limit, [&] { return settle_sockets(fds[0], asked.runs); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const PutStatus& asked, const std::vector<int>&) const {
    if (files_.status.empty()) return fail("the configuration names no status file");
    TRY(put_status_file(files_.status, asked.text));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const OpenDirectory& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, capsules_.init(fds[0]));
    TRY_ASSIGN(Fd opened, open_capsule_directory(init, asked.which));
    return answer_with(std::move(opened));
}

Result<Starter::Answer> Starter::start(const LookInside& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, capsules_.init(fds[0]));
    TRY_ASSIGN(const Fd proc, open_capsule_directory(init, CapsuleDirectory::proc));
    TRY_ASSIGN(const auto pids, capsules_.without_criu(init, proc.get(), asked.pids));
    TRY_ASSIGN(Fd file, memory_file("souk-look", ""));
    const auto look = [&]() -> Status {
        TRY_ASSIGN(const auto seen, look_at_processes(proc.get(), pids, asked.what));
        std::vector<SeenProcess> all;
        for (size_t i = 0; const pid_t pid : asked.pids) {
            SeenProcess of_criu;  // as of one that has ended
            of_criu.pid = pid;
            of_criu.error = ESRCH;
            const bool is_seen = i < pids.size() && pids[i] == pid;
            all.push_back(is_seen ? seen[i++] : std::move(of_criu));
        }
        return write_all(file.get(), encode_look(all), "a look at processes");
    };
    TRY(asked.what.runs ? done_within(running_limit, look) : look());
    return answer_with(std::move(file));
}

Result<Starter::Answer> Starter::start(const FitRestored& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, capsules_.init(fds[0]));
    TRY_ASSIGN(const ino_t capsule, namespace_of(init.pid(), "pid"));
    TRY_ASSIGN(const RunsAs as, capsule_user(init));
    if (!as.known) return no_user();
    RestoredJob job{{as.uid, as.gid, as.groups}, {}, {}};
    for (const pid_t pid : asked.pids) {
        const auto its = namespace_of(pid, "pid");
        if (!its && its.error().code == ESRCH) continue;  // it has ended
        if (!its) return tl::unexpected(its.error());
        if (*its != capsule) return fail("no process of that capsule");
        job.pids.push_back(pid);
    }
    job.limits.insert(asked.limits.begin(), asked.limits.end());
    TRY(fit_restored(init, job));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const AskWaits&, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, capsules_.init(fds[0]));
    TRY_ASSIGN(const bool waits, restored_waits(init));
    return Answer{Done{waits}, {}};
}

Result<Starter::Answer> Starter::start(const AskLoaded&, const std::vector<int>& fds) const {
    TRY_ASSIGN(const Pidfd criu, capsules_.criu(fds[0]));
    return Answer{Done{has_criu_preload(criu)}, {}};
}

Result<Starter::Answer> Starter::start(const EndProcess&, const std::vector<int>& fds) {
    TRY(capsules_.started(fds[0]));
    TRY_ASSIGN(Fd own, duplicate(fds[0]));
    TRY(Pidfd(std::move(own), 0).signal(SIGKILL));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const ConnectInit&, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, capsules_.init(fds[0]));
    TRY(check_own(fds[1], "the directory of a capsule", user_));
    TRY_ASSIGN(Fd connection, connect_to_init(init, fds[1]));
    TRY(capsules_.lies_in(init, fds[1]));
    TRY_ASSIGN(const RunsAs as, capsule_user(init));
    who_.is_here(as);
    return answer_with(std::move(connection));
}

Result<Starter::Answer> Starter::start(const OpenOfMachine& asked, const std::vector<int>&) {
    TRY_ASSIGN(Fd device, open_device(asked.which));
    return answer_with(std::move(device));
}

Result<Starter::Answer> Starter::start(const OpenEvent& asked, const std::vector<int>&) {
    TRY_ASSIGN(Fd event, open_cpu_event(asked.cpu, Nanos{int64_t{asked.every_us} * 1'000}));
    return answer_with(std::move(event));
}

Result<Starter::Answer> Starter::start(const GiveFiles&, const std::vector<int>& fds) const {
    TRY(check_own(fds[0], "a directory with files for agentd", user_));
    TRY(give_files(fds[0], user_));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const LearnKernel&, const std::vector<int>& fds) {
    TRY_ASSIGN(const Pidfd init, capsules_.init(fds[0]));
    TRY_ASSIGN(criu_facts_, read_criu_facts(init));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const AddInputs& asked, const std::vector<int>& fds) {
    if (name_of(fds[0]) != "anon_inode:inotify") return fail("no inotify instance");
    std::string text;
    for (const WatchedInput& one : watch_inputs(fds[0], asked.pseudo))
        text += std::to_string(one.number) + " " + one.path + "\n";
    TRY_ASSIGN(Fd file, memory_file("souk-inputs", text));
    return answer_with(std::move(file));
}

Result<Starter::Answer> Starter::start(const OpenOwnFile& asked, const std::vector<int>&) const {
    const auto& name = asked.file == OwnFile::users ? files_.users : files_.configuration;
    if (name.empty()) return fail("agentd has no such file");
    TRY_ASSIGN(Fd file, open_at(AT_FDCWD, name, O_RDONLY));
    return answer_with(std::move(file));
}

Result<Starter::Answer> Starter::start(const AdoptUsers& asked, const std::vector<int>&) {
    TRY(who_.adopt(asked.users, asked.more));
    return Answer{Done{}, {}};
}

Starter::Answer Starter::take(std::string_view packet, const std::vector<Fd>& descriptors) {
    const std::vector<int> fds = numbers_of(descriptors);
    const auto asked = parse_asked(packet, fds.size());
    auto done = asked ? std::visit([&](const auto& what) { return start(what, fds); }, *asked)
                      : Result<Answer>(tl::unexpected(asked.error()));
    if (done) return std::move(*done);
    return {Refused{done.error().code, done.error().message}, {}};
}

namespace {

constexpr size_t frames_bytes_max = 16 << 20;

Status add_maps(const Armed& armed, Starter::Answer& to) {
    for (const Fd* map : {&armed.gate.map(), &armed.gate.kept()}) {
        TRY_ASSIGN(Fd copy, duplicate(map->get()));
        to.descriptors.push_back(std::move(copy));
    }
    to.told = Done{armed.within};
    return {};
}

// A file in memory that nobody changes any more: to read it waits for nobody.
Result<std::vector<std::string>> frames_in(int file) {
    const int seals = ::fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_WRITE) == 0) return fail("no file of frames");
    TRY_ASSIGN(const std::string bytes, bytes_of(file, frames_bytes_max));
    return decode_frames(bytes);
}

}  // namespace

Result<Starter::Answer> Starter::start(const MakePort& asked, const std::vector<int>& fds) {
    TRY(capsules_.init(fds[0]));
    if (network_ && !asked.plan.found && !network_->range.contains(asked.plan.address))
        return fail("an address that is not of this node's network for jobs");
    TRY_ASSIGN(LocalPort::Made made, LocalPort::open(network_, asked.plan, fds[0]));
    Answer done{Done{}, {}};
    TRY_ASSIGN(Fd end, ports_.add(std::move(made.work)));
    done.descriptors.push_back(std::move(end));
    if (made.armed) TRY(add_maps(*made.armed, done));
    return done;
}

Result<Starter::Answer> Starter::start(const ArmPort& asked, const std::vector<int>& fds) {
    Answer done{Done{}, {}};
    TRY(ports_.with(fds[0], [&](PortWork& port) -> Status {
        TRY_ASSIGN(const Armed armed, port.arm(asked.at_first));
        return add_maps(armed, done);
    }));
    return done;
}

Result<Starter::Answer> Starter::start(const ActOnPort& asked, const std::vector<int>& fds) {
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.act(asked.what); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const HoldFrames& asked, const std::vector<int>& fds) {
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.hold(asked.way, asked.follows); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const FeedFrames& asked, const std::vector<int>& fds) {
    std::vector<std::string> frames;
    if (asked.frames) {
        TRY_ASSIGN(frames, frames_in(fds[1]));
    }
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.feed(asked.since, frames); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const TellHeld&, const std::vector<int>& fds) {
    Answer done{Done{}, {}};
    TRY(ports_.with(fds[0], [&](PortWork& port) -> Status {
        TRY_ASSIGN(const std::string held, port.held());
        TRY_ASSIGN(Fd file, memory_file("souk-frames", held));
        done.descriptors.push_back(std::move(file));
        return {};
    }));
    return done;
}

Result<Starter::Answer> Starter::start(const ReleaseFrames& asked, const std::vector<int>& fds) {
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.release(asked.how); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const SayFrames& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const auto frames, frames_in(fds[1]));
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.say(asked.way, frames); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const EndRepair& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Inside process, capsules_.process_of_job(fds[0]));
    TRY_ASSIGN(Fd own, duplicate(fds[0]));
    TRY_ASSIGN(const bool ended, end_tcp_repair_of(Pidfd(std::move(own), process.here),
                                                   static_cast<int>(asked.number)));
    return Answer{Done{ended}, {}};
}

// Later it could be what somebody else has made, who has agentd in his hands.
Result<Starter::Answer> Starter::start(const KeepPackets&, const std::vector<int>& fds) {
    if (packets_) return fail("which programs see packets is said already");
    std::vector<Fd> programs;
    for (const int fd : fds) {
        TRY_ASSIGN(Fd program, duplicate(fd));
        programs.push_back(std::move(program));
    }
    packets_ = std::move(programs);
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const SeePacketsOfAll&, const std::vector<int>&) const {
    if (!packets_ || packets_->empty()) return fail("agentd has no programs that see packets");
    TRY_ASSIGN(const std::string mounts, read_file(AT_FDCWD, "/proc/self/mountinfo"));
    TRY_ASSIGN(auto links, see_packets(detect_cgroups(mounts).v2, packets_->at(0).get(),
                                       packets_->at(1).get()));
    return Answer{Done{}, std::move(links)};
}

}  // namespace souk::root
