// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/move_rig.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <filesystem>

#include "agentd/inspect/names.hpp"
#include "agentd/inspect/reading.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/page_sink.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/shared_image.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

const char* moves_impossible() {
    if (const char* why = capsules_impossible()) return why;
    return find_criu() ? nullptr : "a test of moves needs CRIU: make deps";
}

CriuTool& test_criu() {
    static CriuTool tool = *find_criu();
    return tool;
}

SessionRig::SessionRig(CapsuleRig& where, int images, const CriuUser& user) : rig(where) {
    CriuStart how;
    how.capsule = &rig.capsule;
    how.images = images;
    how.user = user;
    for (const Fd& end : rig.ends) how.job_ends.push_back(end.get());
    auto started = CriuSession::start(test_criu(), how);
    ck_assert_msg(started.has_value(), "%s", started ? "" : started.error().message.c_str());
    session = std::move(*started);
    rig.ends.clear();
}

SessionRig::~SessionRig() {
    Fd pidfd(::fcntl(session.pidfd().get(), F_DUPFD_CLOEXEC, 3));
    const Pidfd criu(std::move(pidfd), session.pidfd().pid());
    session = CriuSession();
    (void)criu.exited_within(Nanos::from_s(10));
    (void)criu.reap();
}

bool SessionRig::until(CriuEventKind kind, Nanos patience) {
    // The time is limited and not the number of turns, because a job that writes takes any number
    // of them.
    for (const Nanos end = monotonic_now() + patience; monotonic_now() < end;) {
        while (!pending_.empty()) {
            last = pending_.front();
            pending_.erase(pending_.begin());
            if (last.kind == kind) return true;
            if (last.kind == CriuEventKind::failed || last.kind == CriuEventKind::lost)
                return false;
        }
        if (!session) return false;
        pollfd p[3] = {{session.fd(), POLLIN, 0},
                       {rig.closed ? -1 : rig.client.fd(), POLLIN, 0},
                       {side_fd, POLLIN, 0}};
        ::poll(p, 3, 100);
        if (p[2].revents) side();
        if (p[0].revents) pending_ = session.on_readable();
        if (p[1].revents) rig.pump(0);
    }
    return false;
}

namespace {
// A destination takes what a dump writes: each file is on its list, and it can read those that it
// looks into.
void check_files(int images) {
    const auto names = *list_dir(images, ".");
    for (const std::string& name : names) {
        if (!is_image_file(name)) continue;
        ck_assert_msg(inspect::is_file_of_a_job(name), "%s", name.c_str());
        const auto question = inspect::question_about(name);
        if (!question) continue;
        const Fd file = *open_at(images, name, O_RDONLY);
        const auto answer = inspect::read_file_of_image(*question, file.get());
        const auto* refusal = std::get_if<inspect::Refusal>(&answer);
        ck_assert_msg(!refusal, "%s: %s", name.c_str(), refusal ? refusal->why.c_str() : "");
    }
}
}  // namespace

std::string freeze(CapsuleRig& rig, int images, bool refuse, TcpPolicy tcp) {
    rig.helpers_ready = false;
    rig.drained.reset();
    ck_assert(rig.client.helpers_enter(false).has_value());
    ck_assert(rig.until([&] { return rig.helpers_ready; }));
    SessionRig criu(rig, images);
    if (!criu.until(CriuEventKind::ready)) return criu.why();
    ck_assert(rig.client.helpers_leave().has_value());
    DumpOptions options;
    options.root = rig.root;
    options.tcp = tcp;
    options.terminal = rig.terminal;
    ck_assert(criu.session.dump(options).has_value());
    if (!criu.until(CriuEventKind::dump_held)) return criu.why();
    ck_assert(rig.client.drain(images).has_value());
    ck_assert(rig.until([&] { return rig.drained.has_value(); }));
    const bool good = *rig.drained == 0 && arm_expired_timerfds(images) && !refuse;
    if (!good) ck_assert(rig.client.undrain().has_value());
    ck_assert(criu.session.answer(good).has_value());
    if (!criu.until(good ? CriuEventKind::dumped : CriuEventKind::refused)) return criu.why();
    check_files(images);
    return good || refuse ? "" : *rig.failure;
}

std::unique_ptr<CapsuleRig> thaw(JobOutput& output, int images, std::string& why, bool refuse,
                                 TcpPolicy tcp, const CriuUser& user,
                                 const std::function<Status(const Capsule&)>& made) {
    auto rig = std::make_unique<CapsuleRig>(output);
    const auto residue = decode_residue(*read_file(images, SOUK_RESIDUE_NAME, SOUK_RESIDUE_MAX));
    ck_assert_msg(residue.has_value(), "%s", residue ? "" : residue.error().message.c_str());
    ck_assert(rig->client.prepare(residue->tty != 0).has_value());
    ck_assert(rig->client.helpers_enter(true).has_value());
    ck_assert(rig->until([&] { return rig->prepared && rig->helpers_ready; }));
    SessionRig criu(*rig, images, user);
    if (!criu.until(CriuEventKind::ready)) return why = criu.why(), nullptr;
    ck_assert(rig->client.load(images).has_value());
    ck_assert(rig->until([&] { return rig->loaded; }));
    RestoreOptions options;
    options.keys = stdio_keys(rig->residue);
    options.tcp = tcp;
    if (made) options.made = [&] { return made(rig->capsule); };
    ck_assert(criu.session.restore(options).has_value());
    if (!criu.until(CriuEventKind::restore_held)) return why = criu.why(), nullptr;
    if (!refuse) ck_assert(rig->client.restored().has_value());
    if (!refuse) ck_assert(rig->until([&] { return rig->started; }));
    ck_assert(criu.session.answer(!refuse).has_value());
    if (!criu.until(refuse ? CriuEventKind::refused : CriuEventKind::restored))
        return why = criu.why(), nullptr;
    if (!refuse) ck_assert_int_eq(criu.last.root, rig->root);
    return rig;
}

void hop(std::unique_ptr<CapsuleRig>& rig) {
    const TempDir images;
    std::string why = freeze(*rig, images.fd.get());
    ck_assert_msg(why.empty(), "%s", why.c_str());
    JobOutput& output = rig->output;
    const uint64_t sent = rig->input_sent;
    std::string typed = std::move(rig->typed);
    rig.reset();
    rig = thaw(output, images.fd.get(), why);
    ck_assert_msg(rig != nullptr, "%s", why.c_str());
    rig->input_sent = sent;
    rig->send_input(typed);
}

namespace {
// The two ends of a connection between two agents, in one process: wishes and acknowledgements go
// one way, sections the other.
struct LivePump {
    PageSource source;
    PageSink sink;
    PageSections sections{[this](const PageRange& range, std::string_view bytes) -> Status {
        if (range.pages == 0) return {};
        TRY(sink.put(range, bytes));
        if (started) source.acknowledged(sink.bytes_put());
        return {};
    }};
    bool started = false;  // all pages may come
    void start() {
        const Status held = sink.restored();
        ck_assert_msg(held.has_value(), "%s", held ? "" : held.error().message.c_str());
        started = true;
        source.acknowledged(0);
    }
    void faults() {
        const auto wishes = sink.on_readable();
        ck_assert_msg(wishes.has_value(), "%s", wishes ? "" : wishes.error().message.c_str());
        for (const PageRange& w : *wishes) source.wish(w);
    }
    // Carries one piece; returns false if there was none.
    bool step() {
        const auto piece = source.piece();
        ck_assert_msg(piece.has_value(), "%s", piece ? "" : piece.error().message.c_str());
        const size_t part = std::min<size_t>(piece->size(), 99'999);  // cut anywhere
        const Status taken = sections.take(piece->substr(0, part));
        ck_assert_msg(taken.has_value(), "%s", taken ? "" : taken.error().message.c_str());
        source.sent(part);
        return part > 0;
    }
};

std::vector<pid_t> processes_of(const Capsule& capsule) {
    const std::string space =
        std::filesystem::read_symlink("/proc/" + std::to_string(capsule.id().pid) + "/ns/pid");
    std::vector<pid_t> pids;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        const auto theirs = std::filesystem::read_symlink(entry.path() / "ns/pid", gone);
        if (!gone && theirs.string() == space) pids.push_back(std::stoi(name));
    }
    return pids;
}
}  // namespace

const char* pages_impossible() {
    if (const char* why = moves_impossible()) return why;
    static const Status possible = make_pages_possible();
    static const std::string why =
        possible ? "" : "memory cannot go past an image here: " + possible.error().message;
    return possible ? nullptr : why.c_str();
}

// Long: the steps of a move in their order, both ends.
uint64_t live_hop(std::unique_ptr<CapsuleRig>& rig, LiveOrder order) {
    const TempDir images;
    rig->helpers_ready = false;
    rig->drained.reset();
    ck_assert(rig->client.helpers_enter(false).has_value());
    ck_assert(rig->until([&] { return rig->helpers_ready; }));
    auto from = std::make_unique<SessionRig>(*rig, images.fd.get());
    ck_assert_msg(from->until(CriuEventKind::ready), "%s", from->why().c_str());
    DumpOptions dump;
    dump.root = rig->root;
    dump.terminal = rig->terminal;
    dump.lazy = true;
    ck_assert(from->session.dump(dump).has_value());
    ck_assert_msg(from->until(CriuEventKind::dump_held), "%s", from->why().c_str());
    ck_assert(rig->client.drain(images.fd.get()).has_value());
    ck_assert(rig->until([&] { return rig->drained.has_value(); }));
    ck_assert_int_eq(*rig->drained, 0);
    ck_assert(arm_expired_timerfds(images.fd.get()).has_value());

    const auto pids = pids_inside(processes_of(rig->capsule));
    auto sharing = SharedImage::open(images.fd.get(), pids);
    ck_assert_msg(sharing.has_value(), "%s", sharing ? "" : sharing.error().message.c_str());
    for (bool more = true; more;) {
        const auto step = (*sharing)->step();
        ck_assert_msg(step.has_value(), "%s", step ? "" : step.error().message.c_str());
        more = *step;
    }
    check_files(images.fd.get());
    const auto ranges = lazy_ranges(images.fd.get());
    ck_assert(ranges.has_value());
    auto source = PageSource::open(*ranges, pids);
    ck_assert_msg(source.has_value(), "%s", source ? "" : source.error().message.c_str());
    auto sink = PageSink::open(images.fd.get(), *ranges);
    ck_assert_msg(sink.has_value(), "%s", sink ? "" : sink.error().message.c_str());
    LivePump pump{std::move(*source), std::move(*sink)};

    auto next = std::make_unique<CapsuleRig>(rig->output);
    ck_assert(next->client.prepare(rig->terminal.empty() ? false : true).has_value());
    ck_assert(next->client.helpers_enter(true).has_value());
    ck_assert(next->until([&] { return next->prepared && next->helpers_ready; }));
    {
        SessionRig to(*next, images.fd.get());
        ck_assert_msg(to.until(CriuEventKind::ready), "%s", to.why().c_str());
        ck_assert(next->client.load(images.fd.get()).has_value());
        ck_assert(next->until([&] { return next->loaded; }));
        RestoreOptions restore;
        restore.keys = stdio_keys(next->residue);
        restore.lazy = true;
        to.side_fd = pump.sink.fd();
        to.side = [&] {
            pump.faults();
            while (pump.step()) {
            }
        };
        ck_assert(to.session.restore(restore).has_value());
        ck_assert_msg(to.until(CriuEventKind::restore_held), "%s", to.why().c_str());
        pump.faults();  // the userfaultfds may still lie in the socket
        pump.start();
        if (order == LiveOrder::pages_first)
            while (pump.step()) pump.faults();
        // A program that was awake when it was dumped may share all of its pages with a child:
        // those are in the image, and what is left may have been asked for already.
        ck_assert_int_eq(pump.sink.whole(), order == LiveOrder::pages_first ||
                                                pump.sink.bytes_put() >= pump.source.bytes_total());
        ck_assert(next->client.restored().has_value());
        ck_assert(next->until([&] { return next->started; }));
        ck_assert(to.session.answer(true).has_value());
        // With run_first, CRIU's own end needs pages as well.
        to.side = [&] {
            pump.faults();
            if (order == LiveOrder::run_first) pump.step();
        };
        ck_assert_msg(to.until(CriuEventKind::restored), "%s", to.why().c_str());
    }
    for (int i = 0; i < 10'000 && !pump.sink.whole(); ++i) {
        pump.faults();
        if (!pump.step()) next->pump(1);
    }
    ck_assert(!pump.sink.whole() || pump.sink.new_uffds().empty());  // none that is closed by now
    ck_assert_msg(pump.sink.whole(), "%s after %lu of %lu bytes",
                  pump.source.done() ? "all sent" : "not all sent", pump.sink.bytes_put(),
                  pump.source.bytes_total());
    const uint64_t bytes = pump.source.bytes_total(), sent = rig->input_sent;
    std::string typed = std::move(rig->typed);
    rig->capsule.kill();  // with CRIU in it, which never hears what became of its dump
    from.reset();
    rig.reset();
    rig = std::move(next);
    rig->input_sent = sent;
    rig->send_input(typed);
    return bytes;
}

}  // namespace souk::unit
