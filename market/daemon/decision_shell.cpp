// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/decision_shell.hpp"

#include <algorithm>

namespace souk {
namespace {

constexpr Nanos sync_within = Nanos::from_s(1), trouble_pause = Nanos::from_s(5);

market::DecisionText::Pseudonyms pseudonyms_by(const Pseudonymizer& by) {
    return {[by](const JobId& id) { return by.job(id.text()).text; },
            [by](uint32_t uid, Nanos since) { return by.user(uid, since).text; }};
}

}  // namespace

DecisionShell::DecisionShell(Loop& loop, Log& log, DecisionFiles files, uint64_t newest)
    : loop_(loop),
      log_(log),
      files_(std::move(files)),
      text_(pseudonyms_by(files_.pseudonyms()), std::max(newest, files_.number())) {}

Result<std::unique_ptr<DecisionShell>> DecisionShell::open(Loop& loop, Log& log,
                                                           const std::string& dir,
                                                           DecisionFiles::Bounds bounds,
                                                           uint64_t newest) {
    TRY_ASSIGN(DecisionFiles files, DecisionFiles::open(dir, bounds));
    return std::unique_ptr<DecisionShell>(new DecisionShell(loop, log, std::move(files), newest));
}

void DecisionShell::stepped(const market::Market& market, Nanos now) {
    if (!trouble_.empty() && Loop::now() >= try_again_) {
        text_.begin("gap");
        trouble_.clear();
        begins_ = true;
    }
    if (std::string text = text_.take(); !text.empty()) {
        blocks_.push_back({std::move(text), text_.number(), text_.take_named(), begins_, now});
        begins_ = false;
    }
    if (!trouble_.empty() || begins_ || !blocks_.empty() || !files_.wants_segment(now)) return;
    std::string text = text_.restate(market, now);
    blocks_.push_back({std::move(text), text_.number(), text_.take_named(), true, now});
}

void DecisionShell::write() {
    for (const Block& b : std::exchange(blocks_, {})) {
        const Status written = files_.append(b.text, b.number, b.named, b.begins, b.now);
        if (!written) return failed(written.error());
        unsynced_ = true;
    }
    if (unsynced_) sync_soon();
}

void DecisionShell::failed(const Error& error) {
    log_.limited("decisions", Loop::now(), Level::error,
                 "the decision log cannot be written; the market goes on without it",
                 {{"WHY", error}});
    trouble_ = error.message;
    try_again_ = Loop::now() + trouble_pause;
    text_.mute();
    text_.take_named();
}

// Beside everything else: nothing waits for it.
void DecisionShell::sync_soon() {
    if (timer_.waiting() || sync_) return;
    timer_ = loop_.after(sync_within, [this] {
        unsynced_ = false;
        if (files_.file() < 0) return;
        auto file = duplicate(files_.file());
        if (!file) return failed(file.error());
        synced_ = std::move(*file);
        auto sync = loop_.sync(synced_.get(), 0, 0, [this](const Status& done) {
            sync_.close();
            if (!done) return failed(done.error());
            if (unsynced_) sync_soon();
        });
        if (!sync) return failed(sync.error());
        sync_ = std::move(*sync);
    });
}

void DecisionShell::close() {
    write();
    timer_.cancel();
    sync_.close();
    if (unsynced_ && files_.file() >= 0) (void)::fdatasync(files_.file());
}

}  // namespace souk
