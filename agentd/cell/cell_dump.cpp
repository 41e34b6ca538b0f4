// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: a dump, from its plan to its end; the order of its steps is in cell_criu.cpp. The memory of
// a job that leaves goes ahead of it (precopy_rounds.hpp), in the image, or out of the frozen job
// (PageSource). Frozen to disk, or for a checkpoint, it goes into a file of the image
// (frozen_steps.hpp) before the job is told held.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "agentd/cell/cell.hpp"
#include "agentd/core/files_choice.hpp"
#include "agentd/core/gang_hosts.hpp"
#include "checkpoint/core_image.hpp"
#include "checkpoint/expected_files.hpp"
#include "checkpoint/kept_files.h"
#include "checkpoint/resident.hpp"
#include "kernel/base/proc_status.hpp"
#include "kernel/sys/process/movable.hpp"

namespace souk {
namespace {

constexpr int unaccepted_max = 3;

// Resident memory of each process alone says nothing of what they share. Where the kernel does not
// tell, it counts for each.
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

// Memory that is there once: huge pages of hugetlbfs, and all of it where the kernel promises none
// that it does not have.
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

// -------------------------------------------------------------------------------------------------
// before the job is stopped

Result<MoveFacts> Cell::move_facts(double link_bytes_per_s) const {
    TRY_ASSIGN(const auto processes, capsule_processes(*capsule_));
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
        if (const auto all = pids()) count_shared(*all, looker(), facts);
    TRY_ASSIGN(const bool locked, holds_locks(*capsule_, processes, looker()));
    // Who holds locks dies before it is restored (begin_restore): so its image must be all of it.
    facts.pages_possible = site_.pages_possible && !locked && !dump_.needs_all_memory() &&
                           job_group_ && job_group_->entry().v2 >= 0;
    const bool all_here = image_.on_disk() || dump_.for_checkpoint();  // nothing stays in the job
    facts.post_copy_possible = facts.pages_possible && !all_here;
    facts.precopy_possible = facts.post_copy_possible && site_.precopy_possible &&
                             facts.reserved_bytes <= precopy_reserved_max(facts.memory_bytes);
    facts.own_network = job_.spec.net == NetMode::own;
    facts.policy = all_here ? MovePolicy::safe : job_.spec.move;
    facts.link_bytes_per_s = link_bytes_per_s;
    facts.dirty = rounds_.dirty().now();
    if (facts.pages_possible && !dump_.again()) facts.precopy = rounds_.facts();
    return facts;
}

uint64_t Cell::worth_precopy(double link_bytes_per_s, Epoch to) {
    rounds_.expect();
    if (!criu_) return 0;  // dump() says so
    const auto facts = move_facts(link_bytes_per_s);
    if (!facts || !plan_move(*facts).precopy)
        return 0;  // dump() looks again, and says what is wrong
    rounds_.begin(to, facts->memory_bytes);
    return facts->memory_bytes;
}

Result<PrecopySource*> Cell::precopy_round() {
    if (!job_group_) return nullptr;
    opened_ = {};
    return rounds_.round();
}

// What CRIU is expected to write of a dump to disk goes to memory first, where there is room.
Status Cell::begin_image(bool for_restore) {
    const std::string secret = for_restore || !image_.on_disk() ? "" : disk_secret();
    if (secret.empty()) return image_.begin();
    TRY_ASSIGN(const MoveFacts facts, move_facts(0));
    const uint64_t bytes = dump_room_bytes(facts, plan_move(facts).forecast.form);
    const bool room = image_.memory_has_room(bytes);
    if (!room)
        log_.warning("its image is plain on the disk until it is whole",
                     Error{0, "memory for images has no room for " + std::to_string(bytes >> 20) +
                                  " MB (ram_mb)"});
    return image_.begin_dump(secret, room);
}

// In which form it is dumped; what of its memory goes into the image must fit, before anything is
// stopped or written.
Status Cell::plan_dump(double link_bytes_per_s) {
    TRY_ASSIGN(const MoveFacts facts, move_facts(link_bytes_per_s));
    dump_.planned(plan_move(facts), rounds_.dirty_expected());
    const bool written_by_us = (image_.on_disk() || dump_.for_checkpoint()) && dump_.live();
    return image_.room(dump_room_bytes(facts, dump_.form()),
                       written_by_us ? facts.memory_bytes : 0);
}

void Cell::dump(double link_bytes_per_s, bool no_hurry) {
    dump_.begin(link_bytes_per_s, no_hurry);
    const auto refuse = [&](const Trouble& why) {
        plan_ = Plan::dumping;
        criu_failed(why);
    };
    if (!criu_) return refuse("CRIU is not ready");
    if (auto planned = plan_dump(link_bytes_per_s); !planned) return refuse(planned.error());
    image_.on_disk() ? steps_.forget_mounts() : steps_.look_at_mounts(site_.is_network);
    plan_ = Plan::dumping;
    (void)dump_.take_again();
    if (!image_.on_disk()) stay_awake();
    lease_.at_dump(true);
    // Each time: before a dump that is tried again the job has run, and was open to all.
    network_.settle(capsule_->id().pid, [this](size_t left) { begin_dump(left); });
}

// A gang that is saved or frozen at one cut would find such a connection of its own broken, since
// who began it stands as well. So that is tried again when it has run on, though not for ever: it
// may be somebody else's. Who stands already accepts nothing. A job that moves goes on without it:
// its program has not seen it.
void Cell::begin_dump(size_t unaccepted) {
    if (plan_ != Plan::dumping || !criu_) return;
    const bool of_gang = !hosts_of_gang(job_.spec).empty();
    const bool at_a_cut = dump_.for_checkpoint() || (image_.on_disk() && !group_holds());
    if (unaccepted > 0 && at_a_cut && of_gang && ++unaccepted_ < unaccepted_max)
        return criu_failed("connections to it are not accepted by its program yet");
    unaccepted_ = 0;
    limit_cpus(false);
    DumpOptions options;
    options.root = root_.inside();
    options.terminal = root_.terminal();
    options.tcp = job_.spec.tcp;
    options.lazy = dump_.live();
    // Others may take them away before it thaws.
    if (image_.on_disk() || dump_.for_checkpoint())
        if (auto asked = create_file(image_.fd(), SOUK_KEPT_FILES_NAME, ""); !asked)
            return criu_failed(asked.error());
    // What its connections say after CRIU has read their clocks would be later than what they say
    // when it goes on, and TCP drops what is older than it should be (PAWS, RFC 7323).
    if (network_.own())
        options.stopped = [this]() -> Status {
            TRY(network_.shut_out());
            return network_.shut_within();
        };
    if (auto shut = network_.shut_in(); !shut) return criu_failed(shut.error());
    if (auto begun = criu_.dump(options); !begun) criu_failed(begun.error());
}

// -------------------------------------------------------------------------------------------------
// the job stands

void Cell::held_after_dump() {
    if (auto stopped = lease_.stop_for_dump(); !stopped) return fail_dump(stopped.error());
    if (auto given = site_.reach.give(image_.fd()); !given) return fail_dump(given.error());
    // Nobody but root can write to the memory of root's.
    if (!job_group_ || job_.spec.launch.uid == 0) return dump_is_read(ImageFacts{});
    inspection_.read(image_.fd(), [this](const Result<ImageFacts>& facts) { dump_is_read(facts); });
}

void Cell::dump_is_read(const Result<ImageFacts>& facts) {
    if (!facts) return fail_dump(facts.error());
    if (auto noted = note_what_it_has(*facts); !noted) return fail_dump(noted.error());
    // Between plan_dump's look and the stop it has locked a file: once more, with all of its
    // memory.
    if (dump_.live() && image_has_locks(image_.fd())) {
        dump_.with_all_memory();
        return undo_dump();
    }
    dump_.live() ? steps_.share(image_.fd()) : pages_are_shared();
}

// While CRIU dumps: nothing of the job opens or maps a file any more. CRIU's own code in the job is
// in a file without a name, which a look leaves out; its log is left out when it is closed.
void Cell::note_files() {
    files_.reset();
    opened_ = {};
    if (!job_group_) return;  // a machine without control groups does not say which are its
    const auto all = pids();
    if (!all) return;  // said when it is held
    stopped_ = pids_inside(*all);
    if (dump_.live()) {
        opened_.page_maps = site_.reach.open(*all, ProcessFile::page_map);
        opened_.memories = site_.reach.open(*all, ProcessFile::memory);
        opened_.pids = *all;
    }
    auto look = looker()(stopped_, {.states = true, .mapped = true, .maps = dump_.live()});
    if (!look) return;
    if (auto files = open_files_in(*look, stopped_, laid_over(job_.spec)))
        files_ = std::move(*files);
    if (dump_.live()) opened_.look = std::move(*look);
}

// Of who stands stopped for good they were opened while CRIU dumped: no process maps anew.
std::vector<Fd> Cell::open_files_in_proc(const std::vector<pid_t>& pids, ProcessFile file) const {
    const auto& known = file == ProcessFile::page_map ? opened_.page_maps : opened_.memories;
    std::vector<Fd> all;
    for (const pid_t pid : pids) {
        const auto at =
            static_cast<size_t>(std::ranges::find(opened_.pids, pid) - opened_.pids.begin());
        if (at >= known.size() || !known[at]) break;
        if (auto copy = duplicate(known[at].get())) all.push_back(std::move(*copy));
    }
    return all.size() == pids.size() ? std::move(all) : site_.reach.open(pids, file);
}

OpenProcessFiles Cell::opener() const {
    return [this](const std::vector<pid_t>& pids, ProcessFile file) {
        return open_files_in_proc(pids, file);
    };
}

LookAt Cell::looker() const {
    return [this](const PidsInside& pids, const LookFor& what) {
        std::vector<pid_t> inside;
        for (const auto& [number, here] : pids) inside.push_back(number);
        return site_.reach.look(capsule_->pidfd(), inside, what);
    };
}

// CRIU's code in a process makes its mappings more, and memory that is not there is none.
LookAt Cell::looker_at_dump() const {
    return [this](const PidsInside& pids, const LookFor& what) -> Result<std::vector<SeenProcess>> {
        std::vector<SeenProcess> all;
        for (const auto& [inside, here] : pids) {
            const auto known = std::ranges::find(opened_.look, inside, &SeenProcess::pid);
            const auto stands = stopped_.find(inside);
            if (known == opened_.look.end() || stands == stopped_.end() || stands->second != here)
                break;
            all.push_back(*known);
        }
        if (all.size() == pids.size()) return all;
        return looker()(pids, what);
    };
}

Status Cell::note_what_it_has(const ImageFacts& facts) {
    // A machine without control groups does not say which files are its.
    if (!job_group_) return save_open_files(image_.fd(), {});
    const bool forgeable = job_.spec.launch.uid != 0;
    std::map<pid_t, pid_t> inside;
    if (forgeable || !files_) {
        TRY_ASSIGN(const auto all, pids());
        inside = pids_inside(all);
    }
    if (forgeable) {
        TRY(compare_credentials(facts, inside));
        TRY(fits_kinds(facts.kinds));  // or no node would restore it
    }
    if (files_) {
        TRY(leave_out_closed(*files_, stopped_, looker()));
    } else {
        TRY_ASSIGN(files_, open_files_of(inside, laid_over(job_.spec), looker()));
    }
    save_expected_files(image_.fd(), expected_);
    return save_open_files(image_.fd(), *std::exchange(files_, std::nullopt));
}

void Cell::pages_are_shared() {
    if (dump_.live()) {
        const auto left = rounds_.list(image_.fd());
        if (!left) return fail_dump(left.error());
        if (*left) {
            dump_.left_to_send(**left);
            tell_froze();  // again, with what is known now
        }
        rounds_.dirty().save(image_.fd());
    }
    opened_.page_maps.clear();
    opened_.look.clear();
    if (auto armed = arm_expired_timerfds(image_.fd()); !armed)
        log_.warning("timers are not mended", armed.error());
    if (!link_.tell(&CapsuleClient::drain, image_.fd()))
        return fail_dump(because(CauseCode::capsule_silent));
    plan_ = Plan::draining;
}

void Cell::drained(const CapsuleClient::Event& e) {
    if (plan_ != Plan::draining) return;
    plan_ = Plan::dumping;
    if (e.value != 0) return fail_dump(e.trouble());
    // What souk-init has written beside it.
    if (auto given = site_.reach.give(image_.fd()); !given) return fail_dump(given.error());
    steps_.flush();  // what is frozen to disk syncs nothing: its end does
}

// Of a checkpoint.
void Cell::files_are_flushed() {
    if (!job_.spec.files_snapshot || job_.spec.files != FilesMode::home) return write_image();
    const auto begin = [&]() -> Status {
        TRY_ASSIGN(const auto all, pids());
        if (all.empty()) return fail("no process of it is there");
        const Fd root = std::move(site_.reach.open({all.front()}, ProcessFile::root)[0]);
        if (!root) return fail("the root directory of it is not to be had");
        TRY_ASSIGN(snapshot_,
                   site_.files_snapshot(job_, checkpoint_, root.get(), [this](const Status& taken) {
                       snapshot_.reset();
                       const Status noted =
                           taken ? save_put_back(image_.fd(), job_.spec.launch.cwd) : taken;
                       if (noted) return write_image();
                       fail_dump(Trouble("a snapshot of its files: " + noted.error().message));
                   }));
        return {};
    };
    if (auto begun = begin(); !begun) fail_dump(begun.error());
}

// Of an image that stays.
void Cell::write_image() {
    RateLimit* const rate = dump_.no_hurry() ? site_.leave_rate : nullptr;
    dump_.live() ? steps_.write(image_.fd(), {image_.target(), image_.key(), rate})
                 : finish_image(nullptr);  // or CRIU has written all
}

// On its way to another node an image gets its digests while it is sent; one that stays is sealed
// here and now.
void Cell::finish_image(const ImageFile* pages) {
    const auto bytes = image_.seal_files(needs(), pages);
    if (!bytes) return fail_dump(bytes.error());
    try_to_thaw(*bytes);
}

// A lease on a file would be broken: the kernel tells its holder, who stands.
Status Cell::can_try() const {
    if (served_) return fail("its files are its home's");
    TRY_ASSIGN(const Fd image, image_.open_whole());
    TRY_ASSIGN(const Manifest manifest, read_manifest(image.get()));
    uint64_t bytes = 0;
    for (const ImageFile& file : manifest.files)
        if (file.name != page_file_name) bytes += file.bytes;
    if (!image_.fits_memory(2 * bytes)) return fail("memory for images has no room (ram_mb)");
    TRY_ASSIGN(const auto all, pids());
    TRY_ASSIGN(const bool leases, have_leases(all));
    if (leases) return fail("it has a lease on a file");
    TRY_ASSIGN(const std::string why, memory_for_one(all));
    return why.empty() ? Status{} : fail(why);
}

// Before its processes end. A trial that cannot be made keeps nobody from freezing it: that says
// nothing against the image.
void Cell::try_to_thaw(uint64_t bytes) {
    if (dump_.for_checkpoint() || !image_.on_disk()) return dump_is_complete(false, bytes);
    const auto not_tried = [this, bytes](const Error& why) {
        log_.info("it is frozen without a trial of its thaw", {{"WHY", why}});
        dump_is_complete(false, bytes);
    };
    if (auto can = can_try(); !can) return not_tried(can.error());
    trial_.begin(*this, [this, not_tried, bytes](ThawTrial::Outcome outcome, const Trouble& why) {
        if (outcome == ThawTrial::Outcome::thaws) return dump_is_complete(false, bytes);
        if (outcome == ThawTrial::Outcome::not_known) return not_tried({0, why});
        fail_dump(why.within("it could not thaw: "), true);
    });
}

void Cell::dump_is_complete(bool pages_stay, uint64_t bytes) {
    // (Locks of files would block a copy that is to have them.)
    const bool fenced = group_holds() && !image_has_locks(image_.fd());
    // Before its home hears of it: from then on others of its gang may go on, and what they say is
    // later than the cut. In its checkpoint it would have come before it was sent.
    if (dump_.for_checkpoint()) frames_at_cut_ = network_.frames_held();
    tell(guest::DumpHeld{static_cast<int64_t>(bytes), pages_stay, fenced});
}

Result<std::unique_ptr<PageSource>> Cell::pages(Epoch to) const {
    if (!job_group_ || !image_) return fail("the job does not stand frozen");
    TRY_ASSIGN(auto ranges, rounds_.ranges_for(to, image_.fd()));
    TRY_ASSIGN(const auto all, pids());
    TRY_ASSIGN(PageSource source, PageSource::open(std::move(ranges), pids_inside(all), opener()));
    return std::make_unique<PageSource>(std::move(source));
}

// -------------------------------------------------------------------------------------------------
// its end

void Cell::finish_dump() {
    // Stopped by its lease, and by no dump: no copy of it comes from here.
    if (lease_.lapsed() && !criu_) return kill_capsule();
    decided_ = Decided::to_die;
    // What is frozen on v2 dies with its capsule without running once more, sooner than by CRIU,
    // which, if its memory is not in the image, would serve that itself. (Without CRIU: its agentd
    // died while it was held.)
    // Locks of files are taken over by CRIU, as it ends who has them, and nobody frozen can help.
    const bool stuck = criu_ && image_has_locks(image_.fd()) && !lease_.let_run();
    if (!criu_ || dump_.live() || stuck || group_holds() || !criu_.answer(true)) kill_capsule();
    if (image_.on_disk()) keep_frames(network_.frames_held());
}

// What came for the job since its network was shut: who sent it to a gang stands in the same cut,
// and would send it again only seconds after the thaw.
void Cell::keep_frames(const std::optional<std::string>& frames) {
    if (!frames) return;
    if (auto kept = image_.add(frames_file_name, *frames); !kept)
        log_.limited("frames", "its connections may be silent for seconds after its thaw",
                     kept.error());
}

void Cell::go_on() {
    keep_frames(std::exchange(frames_at_cut_, std::nullopt));
    dump_.keeps_image();
    undo_dump();
}

// Of a job that goes on here without the CRIU that held it.
void Cell::mend_connections() {
    if (const auto all = pids()) network_.mend(pids_inside(*all), looker());
}

void Cell::fail_dump(Trouble why, bool of_job) {
    dump_.fails(std::move(why), of_job);
    undo_dump();
}

void Cell::undo_dump() {
    if (lease_.in_place()) {
        (void)lease_.let_run();
        network_.patient(false);
        return tell(guest::DumpUndone{});
    }
    plan_ = Plan::undoing;
    frames_at_cut_.reset();
    steps_.stop();
    trial_.stop();
    snapshot_.reset();
    inspection_.stop();
    (void)link_.tell(&CapsuleClient::undrain);
    (void)lease_.let_run();
    const bool held = criu_ && criu_.phase() == CriuPhase::dump_held;
    if (!held) mend_connections();
    network_.open();
    if (held && criu_.answer(false)) return;  // `refused` follows
    undone();
}

void Cell::undone() {
    const Trouble why = dump_.take_trouble();
    opened_ = {};
    close_criu();
    helpers_leave();
    lease_.at_dump(false);
    limit_cpus(true);
    if (!dump_.take_image()) drop_image();
    if (dump_.again()) return ready_criu(image_.on_disk(), dump_.for_checkpoint());
    if (why.empty()) return tell(guest::DumpUndone{});
    tell(guest::DumpFailed{why, dump_.of_job()});
}

}  // namespace souk
