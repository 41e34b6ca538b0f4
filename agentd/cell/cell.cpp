// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/cell.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agentd/cell/allowed_launch.hpp"
#include "agentd/core/files_choice.hpp"
#include "checkpoint/trial.h"
#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/movable.hpp"

namespace souk {
namespace {

// The span for which this daemon waits for a job to stand between rounds of pre-copy. It is short
// if the job may wait for an answer about its files that comes by way of this daemon.
constexpr Nanos still_limit = Nanos::from_ms(500), still_limit_served = Nanos::from_ms(20);
constexpr Nanos ready_limit = Nanos::from_s(20);
// A look comes so long after the word that a job runs: it need not be told with that.
constexpr Nanos look_after = Nanos::from_ms(20);
constexpr Nanos drop_after = Nanos::from_ms(20);
// A restored job comes from CRIU's last word to its own code within that.
constexpr Nanos last_steps = Nanos::from_ms(500);

}  // namespace

Cell::Cell(CellSite& site, GuestJob job)
    : site_(site),
      job_(std::move(job)),
      key_(job_.key),
      log_(*site.log, key_.id, key_.epoch),
      groups_(site, job_),
      network_(*site.loop, log_, site.network,
               {key_.text(), job_.spec.net == NetMode::own && !site.trial, job_.spec.address,
                job_.spec.checkpoint_every.ns > 0 || job_.spec.restart},
               site.reach),
      capsule_(site, job_, log_, groups_, network_),
      link_(*site.loop, {.event = [this](CapsuleClient::Event& e) { client_event(e); },
                         .read = [this] { stdio_.look_for_end(); },
                         .lost = [this](const std::string& why) { lost_client(why); }}),
      stdio_(*site.loop, link_, job_.spec.launch.tty, stdio_hooks()),
      lease_(*site.loop, log_, groups_, capsule_.directory(),
             {.tell_init = [this](Nanos until) { tell_lease(until); },
              .lapsed = [this](Nanos until) { tell(guest::Lapsed{until}); }}),
      image_(*site.loop, {site.images.get(), site.ram.get(), site.refused.get(), site.reach.settle},
             key_),
      kept_(image_, stdio_),
      processes_(site, job_, groups_, capsule_.optional()),
      intake_(*site.loop, site.pages_possible, intake_hooks()),
      rounds_(log_, site.check_precopy, rounds_hooks()),
      criu_(*site.loop, [this](const CriuEvent& e) { criu_event(e); }),
      inspection_(*site.loop),
      dump_(dump_parts(), *this),
      restore_(restore_parts(), *this) {
    // A daemon before this one has released it.
    released_ = job_.spec.hold && job_.state == GuestState::running;
}

Cell::~Cell() = default;

JobStdio::Hooks Cell::stdio_hooks() {
    return {
        .output = [this](uint32_t stream, uint64_t at,
                         std::string_view b) { return site_.output(key_, stream, at, b); },
        .input_taken = [this](uint64_t offset) { site_.input_taken(key_, offset); },
        // Before CRIU's word that the job runs it is not known whether an exit is the job's own
        // (RestoreJob::look_without_criu).
        .end_counts = [this] { return !restore_.told_to_run(); },
        .ended =
            [this](int32_t status) {
                tell(guest::Exited{status, groups_.what_killed()});
            },
    };
}

PageIntake::Hooks Cell::intake_hooks() {
    return {
        .place = listen_for_faults,
        .keep = [this](int uffd) { return link_.tell(&CapsuleClient::keep, uffd); },
        .let_go = [this] { (void)link_.tell(&CapsuleClient::let_go); },
        .want =
            [this](bool any, uint64_t put, const std::vector<PageRange>& wishes) {
                site_.want_pages(key_, any, put, wishes);
            },
        .may_run = [this] { tell(guest::RestoreHeld{}); },
        .whole = [this] { memory_is_whole(); },
        .failed =
            [this](const Error& why) {
                site_.pages_refused(key_, why.message);
                tell(guest::PagesLost{why, restore_.local_image_refused(why)});
            },
    };
}

PrecopyRounds::Hooks Cell::rounds_hooks() {
    return {
        .pause =
            [this] { return lease_.pause(capsule_.served() ? still_limit_served : still_limit); },
        .resume = [this] { return lease_.resume(); },
        .pids = [this] { return groups_.pids(); },
        .dropped = [this] { site_.precopy_dropped(key_); },
        .open = processes_.opener(),
        .look = processes_.looker_at_dump()};
}

DumpJob::Parts Cell::dump_parts() {
    return {site_,    job_,   log_,       groups_, capsule_, link_,       root_, lease_,
            network_, image_, processes_, rounds_, criu_,    inspection_, stage_};
}

RestoreJob::Parts Cell::restore_parts() {
    return {site_,  job_,       groups_, capsule_, link_, stdio_,      network_,
            image_, processes_, intake_, rounds_,  criu_, inspection_, stage_};
}

// -------------------------------------------------------------------------------------------------
// the capsule and its job

void Cell::create_capsule() {
    if (!job_.from_image) image_.has_none();
    if (auto made = capsule_.make(); !made) {
        if (capsule_) capsule_->kill();
        return tell(guest::CapsuleFailed{made.error()});
    }
    connect(capsule_->take_connection());
    tell(guest::CapsuleReady{});
}

void Cell::connect(Fd connection) {
    if (auto opened = link_.open(std::move(connection)); !opened) {
        link_.close();
        return lost_client(opened.error().message);
    }
    if (!exit_watch_) {
        auto exit = site_.loop->on_exit(capsule_->pidfd().get(), [this] { capsule_ended(); });
        if (exit) exit_watch_ = std::move(*exit);
    }
    stdio_.resync();
    lease_.connected();
}

// souk-init is gone (then its pidfd says so), or took another connection, or broke the protocol.
void Cell::lost_client(const std::string& why) {
    if (life_ == Life::gone || !capsule_) return;
    if (const auto over = capsule_->pidfd().exited_within(Nanos{}); over && *over) return;
    if (why == "closed" && life_ != Life::lives) return;
    log_.limited("cell", "connection to a capsule lost", Error{0, why});
    auto again = site_.reach.connect(capsule_->pidfd(), capsule_.directory().get());
    if (again) connect(std::move(*again));
    // A question that was asked over the old connection gets no answer.
    const bool coming = stage_.is(Stage::coming) && !criu_;
    if (coming && again)
        stage_.enter(Stage::asked);  // it is asked again with the welcome
    else if (coming || stage_.is(Stage::loading))
        criu_failed(because(CauseCode::capsule_silent));
    else if (stage_.is(Stage::draining))
        dump_.fail(because(CauseCode::capsule_silent));
}

void Cell::welcomed(const CapsuleClient::Event& e) {
    root_.is(e.welcome.root_pid);
    root_.set_terminal(e.welcome.tty ? tty_key(e.welcome.tty_rdev, e.welcome.tty_dev) : "");
    stdio_.welcomed(e.welcome.input_taken, e.welcome.input_limit);
    // A daemon before this one ended when all memory had just come.
    if (!intake_.listening() && has_job_ && job_.state != GuestState::filling)
        (void)link_.tell(&CapsuleClient::let_go);
    if (stage_.is(Stage::none) || stage_.is(Stage::asked)) {
        // These helpers belong to a daemon that is gone.
        if (has_job_) (void)link_.tell(&CapsuleClient::helpers_leave);
        // A daemon ended between the drain and the freeze: CRIU has let the job go on.
        if (e.welcome.state == SOUK_DRAINED_STATE && !lease_.stopped())
            (void)link_.tell(&CapsuleClient::undrain);
    }
    if (stage_.is(Stage::asked)) enter_capsule();
}

void Cell::tell_lease(Nanos until) {
    network_.until(until);
    const auto& group = groups_.job_group();
    if (!link_ || !group) return;
    const auto freezer = group->open_freezer();
    const Status told = freezer ? link_.tell(&CapsuleClient::lease, static_cast<uint64_t>(until.ns),
                                             freezer->get(), group->freezer_word())
                                : Status(tl::unexpected(freezer.error()));
    if (!told) log_.warning("PID 1 of a capsule does not know its lease", told.error());
}

void Cell::leased(const CapsuleClient::Event& e) {
    if (e.value != 0) return lease_.stopped_by_init();
    const Nanos until{static_cast<int64_t>(e.offset)};
    if (!lease_.found(until)) return;
    network_.until(until);
    tell(guest::LeaseFound{until});
}

void Cell::job_started(const CapsuleClient::Event& e) {
    root_.is(e.value);
    has_job_ = true;
    if (e.stream == 1) root_.set_terminal(tty_key(e.offset, e.limit));
    tell(guest::JobStarted{});
    look_soon();
}

void Cell::job_held(const CapsuleClient::Event& e) {
    root_.is(e.value);
    if (released_) return release_job();  // the release was lost on the way
    tell(guest::JobHeld{});
}

void Cell::helpers_ready(const CapsuleClient::Event& e) {
    // souk-init has found what cannot move.
    if (e.value == EOPNOTSUPP)
        return criu_failed(because(CauseCode::dump_refused, {{"text", e.bytes}}), true);
    if (e.value != 0) return criu_failed("make way for CRIU in its capsule: " + e.trouble());
    helpers_in_ = true;
    begin_criu();
}

void Cell::client_event(CapsuleClient::Event& e) {
    switch (e.kind) {
        case InitEventKind::welcome: return welcomed(e);
        case InitEventKind::started: return job_started(e);
        case InitEventKind::held: return job_held(e);
        case InitEventKind::exec_failed:
            return tell(guest::JobNotStarted{e.value, e.stream == 1, e.trouble()});
        case InitEventKind::output: return stdio_.output(e.stream, e.offset, e.bytes);
        case InitEventKind::output_eof: return stdio_.output_eof(e.stream, e.offset);
        case InitEventKind::input_taken: return stdio_.input_taken(e.offset, e.limit);
        case InitEventKind::exited: return stdio_.exited(e.exit.wait_status);
        case InitEventKind::stopped: return tell(guest::Stopped{e.value != 0});
        case InitEventKind::leased: return leased(e);
        case InitEventKind::helpers_ready: return helpers_ready(e);
        case InitEventKind::prepared:
            if (e.value != 0) return criu_failed("stdio for the restore: " + e.trouble());
            return restore_.prepared(std::move(e.fds));  // helpers_ready follows
        case InitEventKind::drained: return dump_.drained(e);
        case InitEventKind::loaded: return restore_.loaded(e);
        case InitEventKind::failed:
            // souk-init ends by itself; its exit follows.
            if (!has_job_) tell(guest::CapsuleFailed{"its capsule: " + e.trouble()});
            return;
        case InitEventKind::closed: return lost_client("closed");
    }
}

// A component is started up to its program.
void Cell::hold_job() { start_job(true); }

void Cell::release_job() {
    released_ = true;
    (void)link_.tell(&CapsuleClient::release);
}

void Cell::start_job(bool hold) {
    if (groups_.set_limits()) groups_.job_begins();
    const bool filtered = job_.spec.launch.uid != 0 || site_.filter_root;
    if (auto sent = link_.tell(&CapsuleClient::start, allowed_launch(site_, job_.spec.launch),
                               groups_.job_entry(), filtered ? site_.filter.get() : -1, hold);
        !sent)
        tell(guest::JobNotStarted{0, false, sent.error()});
}

void Cell::signal(int number, bool to_all) {
    (void)link_.tell(&CapsuleClient::signal, number, to_all ? SOUK_TO_ALL : SOUK_TO_FOREGROUND);
}

void Cell::winch(uint16_t rows, uint16_t cols) {
    (void)link_.tell(&CapsuleClient::window_size, rows, cols);
}

void Cell::pause(bool on) {
    const Status done =
        groups_.can_stop() ? lease_.pause(on) : souk::fail("no cgroup v2 could stop it");
    if (!done) log_.warning("a job is not stopped for the owner", done.error());
    tell(guest::Paused{on, done ? Trouble() : Trouble(done.error())});
}

// The job's own group stands: PID 1 of the capsule goes on, with the output of the job.
void Cell::stand() {
    const Status stopped = groups_.can_stop()
                               ? lease_.stand()
                               : souk::fail("this node has no cgroup v2 that could stop it");
    if (stopped) network_.patient(true);
    tell(
        guest::Stood{stopped ? Trouble() : Trouble(stopped.error()).within("it is not stopped: ")});
}

// -------------------------------------------------------------------------------------------------
// images that come

Manifest Cell::needs() const {
    Manifest m;
    m.job = key_.id;
    m.epoch = key_.epoch;
    m.machine = site_.machine;
    return m;
}

void Cell::drop_image() {
    if (const Status kept = image_.drop(has_job_ && !filling()); !kept)
        log_.warning("an image that was refused is removed, and not kept to be looked at",
                     kept.error());
    if (has_job_ && !dumping()) groups_.memory_is_free();
}

void Cell::make_place() {
    if (auto made = kept_.make_place(disk_secret()); !made)
        return tell(guest::CapsuleFailed{made.error()});
    tell(guest::CapsuleReady{});
}

void Cell::restore_local(const Cell* source) {
    if (!source) return restore_.begin_local(nullptr);
    const LocalImage image{source->key(), source->open_sealed(), source->disk_secret()};
    restore_.begin_local(&image);
}

// -------------------------------------------------------------------------------------------------
// CRIU

Status Cell::can_be_dumped() const {
    if (!site_.restriction.empty() && job_.spec.launch.uid != 0)
        return fail_because(CauseCode::lacks_sys_resource);
    const bool node_tmp = job_.spec.files == FilesMode::home && job_.spec.tmp == FilesTmp::node;
    TRY(check_movable(*capsule_.optional(), root_.inside(), job_.spec.tcp, movable_files_max,
                      node_tmp ? SOUK_FILES_ROOT "/tmp" : "", processes_.looker()));
    return processes_.nobody_is_shut_in();
}

void Cell::look() {
    if (!has_job_ || life_ == Life::gone || !stage_.is(Stage::none) || filling() || stdio_.exit())
        return;
    ++looks_;
    look_.cancel();
    groups_.memory_is_free();  // it may have had no room for that when its dump ended
    if (root_.here() == 0 && root_.inside() != 0)
        if (const auto all = groups_.pids()) root_.find(pids_inside(*all));
    const Status movable = can_be_dumped();
    if (!movable && movable.error().code == ESRCH) return;  // it is just ending
    tell(guest::Movable{movable ? Trouble() : Trouble(movable.error())});
}

void Cell::look_soon() {
    look_ = site_.loop->after(look_after, [this] { look(); });
}

// A checkpoint is a copy of all memory beside the job for as long as it is on its way to its home.
// If that would be tight, it goes on the disk.
bool Cell::fits_memory() const {
    const auto held = groups_.memory_held();
    return held && image_.fits_memory(*held);
}

void Cell::ready_criu(bool to_disk, bool to_keep) {
    dump_.course().wanted(to_keep);
    image_.place(to_disk || (to_keep && !fits_memory()));
    criu_.within(ready_limit, [this] {
        criu_failed(because(CauseCode::criu_silent,
                            {{"seconds", std::to_string(ready_limit.ns / 1'000'000'000)}}));
    });
    stage_.enter(Stage::asked);
    if (!image_.on_disk() && !to_keep) stay_awake();
    if (!link_) return criu_failed(because(CauseCode::capsule_silent));
    // If this daemon has just come back, it waits for the welcome.
    if (link_.answers() || !has_job_) enter_capsule();
}

void Cell::enter_capsule() {
    stage_.enter(Stage::coming);
    if (!has_job_) {
        // Both are told at once: the capsule is new, so that nothing stands before its answers.
        // begin_criu() follows.
        (void)link_.tell(&CapsuleClient::prepare, job_.spec.launch.tty);
        (void)link_.tell(&CapsuleClient::helpers_enter, true);
    } else {
        if (auto movable = can_be_dumped(); !movable)
            // ESRCH: the job is just ending.
            return criu_failed(movable.error(), movable.error().code != ESRCH);
        (void)link_.tell(&CapsuleClient::helpers_enter, false);
    }
}

void Cell::begin_criu() {
    if (!stage_.is(Stage::coming) || criu_) return;
    const bool for_restore = restore_.is_prepared();
    // A stale image that a crashed daemon has left must not pass for this one.
    if (!for_restore) drop_image();
    if (!for_restore) {
        const std::string& files = processes_.expect_files();
        if (job_.spec.files == FilesMode::home && groups_.there() && capsule_.served() &&
            site_.files_expected)
            site_.files_expected(key_, files, false);
    }
    if (auto made = for_restore ? image_.begin() : dump_.begin_image(); !made)
        return criu_failed(made.error());
    if (site_.trial)
        if (auto told = create_file(image_.fd(), SOUK_TRIAL_NAME, ""); !told)
            return criu_failed(told.error());
    // The image of a dump of root's job is not looked at (DumpJob::held).
    if (for_restore || job_.spec.launch.uid != 0)
        if (auto ready = inspection_.open(*site_.inspectors); !ready)
            return criu_failed(ready.error());
    start_criu();
}

// souk-root starts no second CRIU in a capsule: the CRIU of a dump that has failed, or of a restore
// whose job runs, may be about to end.
void Cell::start_criu() {
    const bool for_restore = restore_.is_prepared();
    CriuStart how;
    how.capsule = &*capsule_.optional();
    how.images = image_.fd();
    if (for_restore && groups_.there()) how.cgroup = groups_.job_entry();
    if (for_restore) how.cgroup_v1 = groups_.v1_tasks();
    how.job_ends = restore_.ends();
    how.user = restore_.user();
    if (auto started = criu_.start(*site_.criu, how); !started) {
        if (started.error().code == EALREADY && criu_.is_there())
            return criu_.when_ended([this] { start_criu(); });
        return criu_failed(started.error());
    }
    restore_.close_ends();
    // A destination need not wait for CRIU's first word: the dump goes on meanwhile, and a restore
    // waits for it.
    if (for_restore) tell(guest::CriuReady{});
}

void Cell::leave_criu(std::function<void()> then) {
    criu_.close();
    if (!criu_.is_there()) return then();
    criu_.when_ended(std::move(then));
}

void Cell::close_criu() {
    criu_.close();
    dump_.stop();
    inspection_.stop();
    rounds_.drop();
    image_.close();
    restore_.stop();
    stage_.enter(Stage::none);
}

void Cell::helpers_leave() {
    if (std::exchange(helpers_in_, false)) (void)link_.tell(&CapsuleClient::helpers_leave);
}

// The operation for which CRIU works is over, and the job is as before it (or the capsule is of no
// use).
void Cell::criu_failed(const Trouble& why, bool of_job, bool image_refused) {
    const bool of_dump = dump_.course().take_again() || stage_.dumps();
    const bool of_restore = !of_dump && stage_.restores();
    close_criu();
    // CRIU may have died while it held the job.
    if (of_dump) (void)link_.tell(&CapsuleClient::undrain);
    helpers_leave();
    (void)lease_.let_run();
    if (of_restore) return tell(guest::RestoreFailed{why, image_refused});
    if (of_dump) lease_.at_dump(false);
    if (of_dump) groups_.dump_ends();
    if (of_dump) dump_.mend_connections();
    if (has_job_) network_.open();  // a destination that has failed stays shut
    drop_image();
    if (of_dump) return tell(guest::DumpFailed{why, of_job});
    tell(guest::CriuFailed{why, of_job});
}

// Before the decision it is as if nothing had been. After it the word is given, and CRIU's trouble
// changes nothing of it.
void Cell::criu_ended_badly(const CriuEvent& e) {
    if (restore_.told_to_run()) {
        // CRIU's own word that it failed means that nothing ran. Without a word the job may run, or
        // be about to.
        if (e.kind == CriuEventKind::failed) return criu_failed(e.message);
        criu_.forget();
        return criu_.within(last_steps, [this] { restore_.look_without_criu(); });
    }
    if (dump_.let_die()) {  // the dumped processes die with the capsule; the image is the job
        close_criu();
        return kill_capsule();
    }
    // A job that is dumped and drained stands frozen without CRIU too, as it does when its agentd
    // ends: its image or its memory may be on its way, or the job may be another node's already.
    // Its home says what is to become of it.
    if (stage_.is(Stage::dumping) && dump_.group_holds()) return criu_.forget();
    if (!try_again(e)) criu_failed(e.message, dumping() && e.kind == CriuEventKind::failed);
}

// CRIU has refused a dump for a reason that lasts a moment only, and the job has gone on.
bool Cell::try_again(const CriuEvent& e) {
    if (!dumping() || e.kind != CriuEventKind::failed || !criu_trouble_passes(e.message.detail))
        return false;
    const auto wait = dump_.course().as_before();
    if (!wait) return false;
    close_criu();
    helpers_leave();
    dump_.mend_connections();
    network_.open();
    criu_.within(*wait, [this] { ready_criu(image_.on_disk(), dump_.course().for_checkpoint()); });
    return true;
}

void Cell::criu_is_ready() {
    criu_.in_time();
    if (dump_.course().again()) return dump(dump_.course().link_bytes_per_s());
    if (has_job_) return tell(guest::CriuReady{});  // else it has been told
    restore_.criu_is_ready();
}

void Cell::criu_event(const CriuEvent& e) {
    switch (e.kind) {
        case CriuEventKind::ready: return criu_is_ready();
        case CriuEventKind::pre_dump: return dump_.froze();
        case CriuEventKind::stopped: dump_.froze(true); return dump_.stopped();
        case CriuEventKind::dump_held: return dump_.held();
        case CriuEventKind::dumped:
            close_criu();
            // The dumped processes are dead; PID 1 and the helpers go with the capsule.
            if (life_ == Life::gone) return;
            if (life_ == Life::lives) life_ = Life::ending;
            capsule_->kill();
            return;
        case CriuEventKind::restore_held: root_.is(e.root); return restore_.held();
        case CriuEventKind::resumed:
        case CriuEventKind::restored: root_.is(e.root); return job_runs();
        case CriuEventKind::refused:
            if (site_.trial) return tell(guest::RestoreHeld{});  // it was held, and is gone
            return dump_is_undone();
        case CriuEventKind::failed:
        case CriuEventKind::lost:
            if (stage_.is(Stage::undoing)) return dump_is_undone();
            return criu_ended_badly(e);
    }
}

void Cell::dump_is_undone() {
    DumpCourse& course = dump_.course();
    const Trouble why = course.take_trouble();
    processes_.forget();
    close_criu();
    helpers_leave();
    lease_.at_dump(false);
    groups_.dump_ends();
    if (!course.take_image()) drop_image();
    if (course.again()) return ready_criu(image_.on_disk(), course.for_checkpoint());
    if (why.empty()) return tell(guest::DumpUndone{});
    tell(guest::DumpFailed{why, course.of_job()});
}

// CRIU has let the job go, or the job runs without it.
void Cell::job_runs() {
    has_job_ = true;
    restore_.runs();
    close_criu();
    helpers_in_ = false;
    groups_.set_limits();
    network_.open();      // if CRIU has not come to it
    network_.announce();  // again: a new port of a bridge is deaf at first
    stdio_.resync();      // names the new terminal
    restore_.source_is_good();
    tell(guest::RestoreRunning{});
    stdio_.look_for_end();
    // Its image is the past: it takes room in memory, and is never the job again. The word that the
    // job runs goes first. Until its memory is whole, the image may still be wanted.
    image_.later(drop_after, [this] {
        if (!filling()) drop_image();
    });
    look_soon();
}

void Cell::memory_is_whole() {
    site_.pages_whole(key_);
    if (intake_.form() == MoveForm::pages_first) return tell(guest::RestoreHeld{});
    const bool ran = filling();
    stdio_.end_silence();
    tell(guest::PagesWhole{});
    if (!ran) return;
    // CRIU reads of the image until it has let the job go: then it is dropped, a moment later.
    if (has_job_ && !restore_.told_to_run()) drop_image();
    stdio_.speak();
}

// -------------------------------------------------------------------------------------------------
// the end, and a restart of the daemon

void Cell::kill_capsule() {
    const bool lives = capsule_ && life_ != Life::gone;
    if (life_ == Life::lives) life_ = Life::ending;
    lease_.rest();
    // CRIU is killed first: if it saw its agentd gone before it dies it would let the connections
    // of the dumped job speak again.
    if (lives) criu_.kill();
    if (lives) network_.hush();
    if (lives) capsule_->kill();  // the pidfd tells when every process is gone
    // On v2 a frozen job dies frozen: no part of it may run once more.
    if (lives && lease_.stopped() && groups_.job_entry() < 0) (void)groups_.thaw();
    close_criu();
    capsule_.end_files();
    if (lives) return;
    life_ = Life::gone;
    lease_.end();
    tell(guest::CapsuleGone{});
}

void Cell::capsule_ended() {
    const Life before = std::exchange(life_, Life::gone);
    if (before == Life::gone) return;
    exit_watch_.close();
    lease_.end();
    link_.last_words();
    const bool released = stage_.restores() && restore_.told_to_run();
    close_criu();
    capsule_.end_files();
    intake_.end();
    const bool moves = dump_.let_die() && !image_.on_disk() && !dump_.course().for_checkpoint();
    if (!moves) stdio_.exit() && before != Life::ending ? network_.drop() : network_.silence();
    // After a restart of the daemon it is not our child: then its new parent reaps it.
    (void)capsule_->pidfd().reap();
    if (before == Life::removing) return remove_files();
    if (released) tell(guest::RestoreRunning{});  // it may have run, for a moment
    tell(guest::CapsuleGone{});
}

void Cell::silence() { network_.silence(); }

void Cell::remove() {
    lease_.end();
    close_criu();
    if (!capsule_ || life_ == Life::gone) return remove_files();
    life_ = Life::removing;
    // It ends at once; its exit comes to capsule_ended().
    if (stdio_.exit() && link_.tell(&CapsuleClient::quit)) return;
    capsule_->kill();
    capsule_.end_files();
}

void Cell::remove_files() {
    if (dump_.trial().is_there()) return dump_.trial().when_gone([this] { remove_files(); });
    network_.drop();
    capsule_.remove_directory();
    drop_image();
    if (auto back = groups_.give_back(); !back)
        log_.warning("cannot remove a control group", back.error());
    tell(guest::Removed{});
}

Guest::Found Cell::adopt() {
    Guest::Found found;
    if (capsule_.open_directory()) {
        capsule_.find_exit(found);
        capsule_.find();
    }
    if (const auto sealed = open_sealed()) {
        const auto manifest = read_manifest(sealed->get());
        found.image_complete = manifest.has_value();
        if (job_.kept && manifest) kept_.find_ends(*manifest, sealed->get());
        if (manifest) image_.drop_stage();
    }
    if (!capsule_) return found;
    found.capsule_alive = true;
    capsule_.begin_files();
    capsule_.find_job(found);
    if (groups_.there() && found.job_alive) find_stop(found);
    // That comes before its image goes: the files that the job runs with are its own now.
    has_job_ = found.job_alive || found.exited;
    groups_.found_running(has_job_);
    // A checkpoint was on its way.
    if (job_.state == GuestState::running && found.job_alive && !found.held_by_dump) drop_image();
    // A job that a dump holds stays cut off, and so does a copy that was not told to run: it will
    // be ended.
    const bool dumped = found.held_by_dump && !lease_.in_place();
    const bool runs = job_.state == GuestState::running || job_.state == GuestState::held;
    // So does a copy that its CRIU has taken with it while it was told to run.
    const bool lost = job_.state == GuestState::held && job_.from_image && !found.job_alive;
    network_.find(*capsule_, dumped || !runs || lost);
    if (job_.state == GuestState::running) network_.patient(lease_.in_place());
    connect(capsule_->take_connection());
    return found;
}

void Cell::find_stop(Guest::Found& found) {
    const auto frozen = read_file(groups_.job_entry(), "cgroup.freeze");
    found.held_by_dump = frozen && frozen->starts_with("1");
    if (found.held_by_dump) lease_.found_stopped(job_.in_place);
    found.lapsed = lease_.lapsed();
    found.paused = found.held_by_dump && lease_.found_paused();
    // Without a lease it is as a job that runs; with one it does not go on before its home has
    // answered.
    if (!found.paused || found.lapsed || job_.in_place) return;
    found.lapsed = job_.spec.lease.ns > 0;
    found.held_by_dump = found.lapsed;
    if (!found.lapsed) lease_.found_running();
}

}  // namespace souk
