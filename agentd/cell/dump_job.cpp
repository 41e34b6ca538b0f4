// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/dump_job.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "agentd/core/gang_hosts.hpp"
#include "checkpoint/core_image.hpp"
#include "checkpoint/kept_files.h"
#include "checkpoint/precopy_store.hpp"
#include "checkpoint/resident.hpp"
#include "kernel/base/proc_status.hpp"
#include "kernel/sys/process/movable.hpp"

namespace souk {
namespace {

constexpr int unaccepted_max = 3;

// The resident memory of each process says nothing of the memory that processes share. If the
// kernel does not tell that, it counts for each.
void count_shared(const std::vector<pid_t>& pids, const LookAt& look, MoveFacts& facts) {
    const auto resident = resident_of(pids_inside(pids), look);
    if (!resident) return;
    facts.memory_bytes = resident->proportional;
    facts.shared_bytes = resident->shared_max();
    facts.image_bytes =
        resident->anonymous + resident->proportional - resident->anonymous_proportional;
}

// A lease is a line such as "1: LEASE  ACTIVE    READ  PID 08:01:42 0 EOF".
Result<bool> have_leases(const std::vector<pid_t>& pids) {
    TRY_ASSIGN(const std::string locks, read_file(AT_FDCWD, "/proc/locks"));
    std::istringstream lines(locks);
    for (std::string line; std::getline(lines, line);) {
        pid_t holder = 0;
        if (std::sscanf(line.c_str(), "%*d: LEASE %*s %*s %d", &holder) == 1 &&
            std::ranges::find(pids, holder) != pids.end())
            return true;
    }
    return false;
}

// The reason why the job's memory cannot be there twice: it has huge pages of hugetlbfs, or the
// kernel promises no memory that it does not have. Empty: it can.
Result<std::string> memory_for_one(const std::vector<pid_t>& pids) {
    TRY_ASSIGN(const std::string promises, read_file(AT_FDCWD, "/proc/sys/vm/overcommit_memory"));
    if (promises.starts_with('2')) return std::string("vm.overcommit_memory is 2");
    for (const pid_t pid : pids) {
        const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status");
        const auto huge = status ? status_line(*status, "HugetlbPages") : std::nullopt;
        if (huge && huge->find_first_of("123456789") != huge->npos)
            return std::string("it has huge pages");
    }
    return std::string();
}

}  // namespace

DumpJob::DumpJob(Parts parts, Owner& owner)
    : p_(parts), owner_(owner), steps_(*p_.site.loop, steps_hooks()), trial_(p_.site) {}

FrozenSteps::Hooks DumpJob::steps_hooks() {
    return {
        .pids = [this] { return p_.groups.pids(); },
        .shared = [this] { pages_are_shared(); },
        .flushed = [this] { is_flushed(); },
        .written = [this](const ImageFile& pages) { finish_image(&pages); },
        .failed = [this](const Trouble& why) { fail(why); },
        .syncer = [this] { return p_.site.syncer(p_.capsule->pidfd()); },
        .home =
            [this](const std::function<void(const Result<AtHome>&)>& done) {
                return p_.site.files_home(p_.job.key, done);
            },
        .open = p_.processes.opener(),
    };
}

// -------------------------------------------------------------------------------------------------
// before the job is stopped

Result<MoveFacts> DumpJob::facts(double link_bytes_per_s) const {
    TRY_ASSIGN(const auto processes, capsule_processes(*p_.capsule));
    MoveFacts facts;
    facts.processes = facts.threads = 0;
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1 || p.parent == 0) continue;  // souk-init, and CRIU, which came from outside
        ++facts.processes;
        facts.threads += p.threads;
        facts.reserved_bytes += p.reserved_bytes;
        facts.memory_bytes += p.resident_pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    }
    if (facts.processes > 1)
        if (const auto all = p_.groups.pids()) count_shared(*all, p_.processes.looker(), facts);
    TRY_ASSIGN(const bool locked, holds_locks(*p_.capsule, processes, p_.processes.looker()));
    // A job with locks dies before it is restored (RestoreJob), so its image must be all of it.
    facts.pages_possible =
        p_.site.pages_possible && !locked && !course_.needs_all_memory() && p_.groups.can_stop();
    // Nothing stays in the job.
    const bool all_here = p_.image.on_disk() || course_.for_checkpoint();
    facts.post_copy_possible = facts.pages_possible && !all_here;
    facts.precopy_possible = facts.post_copy_possible && p_.site.precopy_possible &&
                             facts.reserved_bytes <= precopy_reserved_max(facts.memory_bytes);
    facts.own_network = p_.job.spec.net == NetMode::own;
    facts.policy = all_here ? MovePolicy::safe : p_.job.spec.move;
    facts.link_bytes_per_s = link_bytes_per_s;
    facts.dirty = p_.rounds.dirty().now();
    if (facts.pages_possible && !course_.again()) facts.precopy = p_.rounds.facts();
    return facts;
}

uint64_t DumpJob::worth_precopy(double link_bytes_per_s, Epoch to) {
    p_.rounds.expect();
    if (!p_.criu) return 0;  // begin() says so
    const auto known = facts(link_bytes_per_s);
    if (!known || !plan_move(*known).precopy)
        return 0;  // begin() looks again, and says what is wrong
    p_.rounds.begin(to, known->memory_bytes);
    return known->memory_bytes;
}

Result<PrecopySource*> DumpJob::precopy_round() {
    if (!p_.groups.there()) return nullptr;
    p_.processes.forget();
    return p_.rounds.round();
}

// The files that CRIU writes for a dump to disk go to memory first, if there is room for as many as
// it is expected to write.
Status DumpJob::begin_image() {
    const std::string secret = !p_.image.on_disk() ? "" : owner_.disk_secret();
    if (secret.empty()) return p_.image.begin();
    TRY_ASSIGN(const MoveFacts known, facts(0));
    const uint64_t bytes = dump_room_bytes(known, plan_move(known).forecast.form);
    const bool room = p_.image.memory_has_room(bytes);
    if (!room)
        p_.log.warning("its image is plain on the disk until it is whole",
                       Error{0, "memory for images has no room for " + std::to_string(bytes >> 20) +
                                    " MB (ram_mb)"});
    return p_.image.begin_dump(secret, room);
}

// Chooses the form of the dump. The memory that goes into the image must fit before anything is
// stopped or written.
Status DumpJob::plan(double link_bytes_per_s) {
    TRY_ASSIGN(const MoveFacts known, facts(link_bytes_per_s));
    course_.planned(plan_move(known), p_.rounds.dirty_expected());
    const bool written_by_us = (p_.image.on_disk() || course_.for_checkpoint()) && course_.live();
    return p_.image.room(dump_room_bytes(known, course_.form()),
                         written_by_us ? known.memory_bytes : 0);
}

void DumpJob::begin(double link_bytes_per_s, bool no_hurry) {
    course_.begin(link_bytes_per_s, no_hurry);
    const Status planned = p_.criu ? plan(link_bytes_per_s) : souk::fail("CRIU is not ready");
    p_.stage.enter(Stage::dumping);
    if (!planned) return owner_.criu_failed(planned.error());
    p_.image.on_disk() ? steps_.forget_mounts() : steps_.look_at_mounts(p_.site.is_network);
    (void)course_.take_again();
    if (!p_.image.on_disk()) owner_.stay_awake();
    p_.lease.at_dump(true);
    // Each try waits for that: before a dump that is tried again the job has run, and was open.
    p_.network.settle(p_.capsule->id().pid, [this](size_t left) { connections_are_settled(left); });
}

// A gang that is saved or frozen at one cut would find an unaccepted connection of its own broken,
// because the component that began it stands as well. So the dump is tried again when the job has
// run on, though not for ever: the connection may be a stranger's. A job that stands already
// accepts nothing. A job that moves goes on without the connection: its program has not seen it.
void DumpJob::connections_are_settled(size_t unaccepted) {
    if (!p_.stage.is(Stage::dumping) || !p_.criu) return;
    const bool of_gang = !hosts_of_gang(p_.job.spec).empty();
    const bool at_a_cut = course_.for_checkpoint() || (p_.image.on_disk() && !group_holds());
    if (unaccepted > 0 && at_a_cut && of_gang && ++unaccepted_ < unaccepted_max)
        return owner_.criu_failed("connections to it are not accepted by its program yet");
    unaccepted_ = 0;
    p_.groups.dump_begins();
    DumpOptions options;
    options.root = p_.root.inside();
    options.terminal = p_.root.terminal();
    options.tcp = p_.job.spec.tcp;
    options.lazy = course_.live();
    // Others may take files away before the job thaws.
    if (p_.image.on_disk() || course_.for_checkpoint())
        if (auto asked = create_file(p_.image.fd(), SOUK_KEPT_FILES_NAME, ""); !asked)
            return owner_.criu_failed(asked.error());
    if (p_.image.on_disk() && !course_.for_checkpoint())
        if (auto asked = create_file(p_.image.fd(), SOUK_TO_DISK_NAME, ""); !asked)
            return owner_.criu_failed(asked.error());
    // A segment that a connection sends after CRIU has read the clocks would be later than those
    // that it sends when it goes on, and TCP drops a segment that is older than it should be (PAWS,
    // RFC 7323).
    if (p_.network.own())
        options.stopped = [this]() -> Status {
            TRY(p_.network.shut_out());
            return p_.network.shut_within();
        };
    if (auto shut = p_.network.shut_in(); !shut) return owner_.criu_failed(shut.error());
    if (auto begun = p_.criu.dump(options); !begun) owner_.criu_failed(begun.error());
}

// -------------------------------------------------------------------------------------------------
// the job stands

void DumpJob::froze(bool all_stand) {
    owner_.tell(guest::DumpFroze{course_.forecast(), all_stand});
}

void DumpJob::held() {
    if (auto stopped = p_.lease.stop_for_dump(); !stopped) return fail(stopped.error());
    if (auto given = p_.site.reach.give(p_.image.fd()); !given) return fail(given.error());
    // Only root can write to the memory of root's jobs.
    if (!p_.groups.there() || p_.job.spec.launch.uid == 0) return image_is_read(ImageFacts{});
    p_.inspection.read(p_.image.fd(),
                       [this](const Result<ImageFacts>& facts) { image_is_read(facts); });
}

void DumpJob::image_is_read(const Result<ImageFacts>& facts) {
    if (!facts) return fail(facts.error());
    if (auto noted = p_.processes.save(p_.image.fd(), *facts); !noted) return fail(noted.error());
    // The job has locked a file between the plan's look and its stop: it is dumped once more, with
    // all of its memory.
    if (course_.live() && image_has_locks(p_.image.fd())) {
        course_.with_all_memory();
        return undo();
    }
    course_.live() ? steps_.share(p_.image.fd()) : pages_are_shared();
}

void DumpJob::pages_are_shared() {
    const int image = p_.image.fd();
    if (course_.live()) {
        const auto left = p_.rounds.list(image);
        if (!left) return fail(left.error());
        if (*left) {
            course_.left_to_send(**left);
            froze();  // again, with what is known now
        }
        p_.rounds.dirty().save(image);
    }
    p_.processes.memory_is_known();
    if (auto armed = arm_expired_timerfds(image); !armed)
        p_.log.warning("timers are not mended", armed.error());
    if (!p_.link.tell(&CapsuleClient::drain, image))
        return fail(because(CauseCode::capsule_silent));
    p_.stage.enter(Stage::draining);
}

void DumpJob::drained(const CapsuleClient::Event& e) {
    if (!p_.stage.is(Stage::draining)) return;
    p_.stage.enter(Stage::dumping);
    if (e.value != 0) return fail(e.trouble());
    // souk-init has written files beside CRIU's.
    if (auto given = p_.site.reach.give(p_.image.fd()); !given) return fail(given.error());
    steps_.flush();  // a freeze to disk syncs nothing here: its end does
}

void DumpJob::is_flushed() {
    // A job with locks ends before its copy is restored, as in a freeze.
    if (!course_.for_checkpoint())
        return p_.image.on_disk()               ? write_image()
               : image_has_locks(p_.image.fd()) ? finish_image(nullptr)
                                                : complete(course_.live(), p_.image.bytes());
    const bool snapshot = p_.job.spec.files_snapshot && p_.job.spec.files == FilesMode::home;
    snapshot ? take_snapshot() : write_image();
}

void DumpJob::take_snapshot() {
    const auto begin = [&]() -> Status {
        TRY_ASSIGN(const auto all, p_.groups.pids());
        if (all.empty()) return souk::fail("no process of it is there");
        const Fd root = std::move(p_.site.reach.open({all.front()}, ProcessFile::root)[0]);
        if (!root) return souk::fail("the root directory of it is not to be had");
        const auto end = [this](const Status& taken) {
            snapshot_.reset();
            const Status noted =
                taken ? save_put_back(p_.image.fd(), p_.job.spec.launch.cwd) : taken;
            if (noted) return write_image();
            fail(Trouble("a snapshot of its files: " + noted.error().message));
        };
        TRY_ASSIGN(snapshot_, p_.site.files_snapshot(p_.job, checkpoint_, root.get(), end));
        return {};
    };
    if (auto begun = begin(); !begun) fail(begun.error());
}

// The image stays on this node.
void DumpJob::write_image() {
    RateLimit* const rate = course_.no_hurry() ? p_.site.leave_rate : nullptr;
    course_.live() ? steps_.write(p_.image.fd(), {p_.image.target(), p_.image.key(), rate})
                   : finish_image(nullptr);  // CRIU has written all
}

// On its way to another node an image gets its digests while it is sent. An image that stays, or
// is tried, is sealed here and now.
void DumpJob::finish_image(const ImageFile* pages) {
    const auto bytes = p_.image.seal_files(owner_.needs(), pages);
    if (!bytes) return fail(bytes.error());
    try_thaw(*bytes);
}

// A lease on a file would be broken: the kernel tells its holder, which stands.
Status DumpJob::can_try() const {
    if (p_.capsule.served()) return souk::fail("its files are its home's");
    TRY_ASSIGN(const Fd image, p_.image.open_whole());
    TRY_ASSIGN(const Manifest manifest, read_manifest(image.get()));
    uint64_t bytes = 0;
    for (const ImageFile& file : manifest.files)
        if (file.name != page_file_name) bytes += file.bytes;
    if (!p_.image.fits_memory(2 * bytes))
        return souk::fail("memory for images has no room (ram_mb)");
    TRY(room_precopy(2 * bytes));  // a machine without memory would end CRIU or others
    TRY_ASSIGN(const auto all, p_.groups.pids());
    TRY_ASSIGN(const bool leases, have_leases(all));
    if (leases) return souk::fail("it has a lease on a file");
    TRY_ASSIGN(const std::string why, memory_for_one(all));
    return why.empty() ? Status{} : souk::fail(why);
}

// The trial comes before the processes end. A trial that cannot be made does not keep the job from
// being frozen or moved: it says nothing against the image.
void DumpJob::try_thaw(uint64_t bytes) {
    if (course_.for_checkpoint()) return complete(false, bytes);
    const auto go = [this, bytes] {
        if (const auto open = p_.image.on_disk() ? Status{} : p_.image.unseal(); !open)
            return fail(open.error());
        complete(false, bytes);
    };
    const auto not_tried = [this, go](const Error& why) {
        p_.log.info("its image is not tried", {{"WHY", why}});
        go();
    };
    if (auto can = can_try(); !can) return not_tried(can.error());
    owner_.try_thaw(trial_, [this, not_tried, go](ThawTrial::Outcome outcome, const Trouble& why) {
        if (outcome == ThawTrial::Outcome::thaws) return go();
        if (outcome == ThawTrial::Outcome::not_known) return not_tried({0, why});
        fail(why.within("it could not thaw: "), true);
    });
}

void DumpJob::complete(bool pages_stay, uint64_t bytes) {
    // Locks of files would block a copy that is to have them.
    const bool fenced = group_holds() && !image_has_locks(p_.image.fd());
    // That is taken before the home hears of the dump: from then on others of its gang may go on,
    // and their frames are later than the cut. In its checkpoint such a frame would have come
    // before it was sent.
    if (course_.for_checkpoint()) frames_at_cut_ = p_.network.frames_held();
    owner_.tell(guest::DumpHeld{static_cast<int64_t>(bytes), pages_stay, fenced});
}

Result<std::unique_ptr<PageSource>> DumpJob::pages(Epoch to) const {
    if (!p_.groups.there() || !p_.image) return souk::fail("the job does not stand frozen");
    TRY_ASSIGN(auto ranges, p_.rounds.ranges_for(to, p_.image.fd()));
    TRY_ASSIGN(const auto all, p_.groups.pids());
    TRY_ASSIGN(PageSource source,
               PageSource::open(std::move(ranges), pids_inside(all), p_.processes.opener()));
    return std::make_unique<PageSource>(std::move(source));
}

// -------------------------------------------------------------------------------------------------
// its end

void DumpJob::finish() {
    // The lease stopped the job, and no dump did: no copy of it comes from here.
    if (p_.lease.lapsed() && !p_.criu) return owner_.kill_capsule();
    let_die_ = true;
    // A job that is frozen on v2 dies with its capsule without running once more, sooner than by
    // CRIU, which, if its memory is not in the image, would serve that itself. (There is no CRIU if
    // the agentd died while the job was held.) CRIU takes over locks of files as it ends their
    // holder, and no frozen process can help in that.
    const bool stuck = p_.criu && image_has_locks(p_.image.fd()) && !p_.lease.let_run();
    if (!p_.criu || course_.live() || stuck || group_holds() || !p_.criu.answer(true))
        owner_.kill_capsule();
    if (p_.image.on_disk()) keep_frames(p_.network.frames_held());
}

// Keeps the frames that came for the job since its network was shut: a sender in the same gang
// stands in the same cut, and would send them again only seconds after the thaw.
void DumpJob::keep_frames(const std::optional<std::string>& frames) {
    if (!frames) return;
    if (auto kept = p_.image.add(frames_file_name, *frames); !kept)
        p_.log.limited("frames", "its connections may be silent for seconds after its thaw",
                       kept.error());
}

void DumpJob::go_on() {
    keep_frames(std::exchange(frames_at_cut_, std::nullopt));
    course_.keeps_image();
    undo();
}

void DumpJob::mend_connections() {
    if (const auto all = p_.groups.pids())
        p_.network.mend(pids_inside(*all), p_.processes.looker());
}

void DumpJob::fail(Trouble why, bool of_job) {
    course_.fails(std::move(why), of_job);
    undo();
}

void DumpJob::stop() {
    steps_.stop();
    trial_.stop();
    snapshot_.reset();
}

void DumpJob::undo() {
    if (p_.lease.in_place()) {
        (void)p_.lease.let_run();
        p_.network.patient(false);
        return owner_.tell(guest::DumpUndone{});
    }
    p_.stage.enter(Stage::undoing);
    frames_at_cut_.reset();
    stop();
    p_.inspection.stop();
    (void)p_.link.tell(&CapsuleClient::undrain);
    (void)p_.lease.let_run();
    const bool held = p_.criu && p_.criu.phase() == CriuPhase::dump_held;
    if (!held) mend_connections();
    p_.network.open();
    if (held && p_.criu.answer(false)) return;  // CRIU's `refused` follows
    owner_.dump_is_undone();
}

}  // namespace souk
