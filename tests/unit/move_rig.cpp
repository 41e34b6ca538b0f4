// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/move_rig.hpp"

#include <poll.h>

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

SessionRig::SessionRig(CapsuleRig& where, int images) : rig(where) {
    CriuStart how;
    how.capsule = &rig.capsule;
    how.images = images;
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

bool SessionRig::until(CriuEventKind kind) {
    for (int i = 0; i < 600; ++i) {
        while (!pending_.empty()) {
            last = pending_.front();
            pending_.erase(pending_.begin());
            if (last.kind == kind) return true;
            if (last.kind == CriuEventKind::failed || last.kind == CriuEventKind::lost) return false;
        }
        if (!session) return false;
        pollfd p[2] = {{session.fd(), POLLIN, 0}, {rig.closed ? -1 : rig.client.fd(), POLLIN, 0}};
        ::poll(p, 2, 100);
        if (p[0].revents) pending_ = session.on_readable();
        if (p[1].revents) rig.pump(0);
    }
    return false;
}

std::string freeze(CapsuleRig& rig, int images, bool refuse, TcpPolicy tcp) {
    rig.helpers_ready = false;
    rig.drained.reset();
    ck_assert(rig.client.helpers_enter(false).has_value());
    ck_assert(rig.until([&] { return rig.helpers_ready; }));
    SessionRig criu(rig, images);
    if (!criu.until(CriuEventKind::ready)) return criu.last.message;
    ck_assert(rig.client.helpers_leave().has_value());
    DumpOptions options;
    options.root = rig.root;
    options.tcp = tcp;
    options.terminal = rig.terminal;
    ck_assert(criu.session.dump(options).has_value());
    if (!criu.until(CriuEventKind::dump_held)) return criu.last.message;
    ck_assert(rig.client.drain(images).has_value());
    ck_assert(rig.until([&] { return rig.drained.has_value(); }));
    const bool good = *rig.drained == 0 && arm_expired_timerfds(images) && !refuse;
    if (!good) ck_assert(rig.client.undrain().has_value());
    ck_assert(criu.session.answer(good).has_value());
    if (!criu.until(good ? CriuEventKind::dumped : CriuEventKind::refused)) return criu.last.message;
    return good || refuse ? "" : *rig.failure;
}

std::unique_ptr<CapsuleRig> thaw(JobOutput& output, int images, std::string& why, bool refuse, TcpPolicy tcp) {
    auto rig = std::make_unique<CapsuleRig>(output);
    const auto residue = decode_residue(*read_file(images, SOUK_RESIDUE_NAME, SOUK_RESIDUE_MAX));
    ck_assert_msg(residue.has_value(), "%s", residue ? "" : residue.error().message.c_str());
    ck_assert(rig->client.prepare(residue->tty != 0).has_value());
    ck_assert(rig->client.helpers_enter(true).has_value());
    ck_assert(rig->until([&] { return rig->prepared && rig->helpers_ready; }));
    SessionRig criu(*rig, images);
    if (!criu.until(CriuEventKind::ready)) return why = criu.last.message, nullptr;
    ck_assert(rig->client.load(images).has_value());
    ck_assert(rig->until([&] { return rig->loaded; }));
    RestoreOptions options;
    options.keys = stdio_keys(rig->residue);
    options.tcp = tcp;
    ck_assert(criu.session.restore(options).has_value());
    if (!criu.until(CriuEventKind::restore_held)) return why = criu.last.message, nullptr;
    if (!refuse) ck_assert(rig->client.restored().has_value());
    if (!refuse) ck_assert(rig->until([&] { return rig->started; }));
    ck_assert(criu.session.answer(!refuse).has_value());
    if (!criu.until(refuse ? CriuEventKind::refused : CriuEventKind::restored)) return why = criu.last.message, nullptr;
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

}  // namespace souk::unit
