// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/guest_moves.hpp"

#include <utility>

#include "checkpoint/frozen_memory.hpp"

namespace souk {

GuestMoves::GuestMoves(const GuestMovesParts& parts) : p_(parts) {
    make_transfers();
    make_precopy();
}

Status GuestMoves::frame(uint64_t number, const NodeName& node, const wire::Frame& f) {
    return PrecopyLinks::takes(f) ? precopy_->frame(number, node, f)
                                  : transfers_->frame(number, node, f);
}

void GuestMoves::closed(uint64_t number) {
    transfers_->closed(number);
    precopy_->closed(number);
}

void GuestMoves::progress(Nanos now, std::vector<JobSend>& to) const {
    precopy_->progress(now, to);
    transfers_->progress(now, to);
}

void GuestMoves::ended(const GuestKey& key, guest::Event event) {
    p_.listener.effect_ended(key, std::move(event));
}

// -------------------------------------------------------------------------------------------------
// memory ahead of an image

// Sends memory ahead in rounds, or ends the step at once where that is not worth it. A round that
// fails leaves a job that runs, and a move in another form. Only the loss of a destination that has
// taken memory ends the move.
void GuestMoves::send_precopy(Cell& c, const guest::Do& effect) {
    const uint64_t bytes =
        c.worth_precopy(transfers_->bytes_per_s(effect.dest.node), effect.other_epoch);
    if (bytes == 0) return ended(effect.key, guest::SentPrecopy{});
    const GuestKey to{effect.key.id, effect.other_epoch};
    p_.log.info("memory goes ahead", {{"JOB", effect.key.id.text()},
                                      {"EPOCH", effect.key.epoch.n},
                                      {"bytes", std::to_string(bytes)},
                                      {"to", effect.dest.node}});
    precopy_->open(effect.key, to, effect.dest, bytes);
}

void GuestMoves::precopy_round(const GuestKey& key) {
    Cell* c = cell(key);
    if (!c) return precopy_->close(key);
    const auto more = c->precopy_round();
    if (more && *more) return precopy_->send(key, **more);
    if (!more && c->precopy_late()) return precopy_->round_later(key);
    if (!more) {
        p_.log.warning("memory is not sent ahead",
                       {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"WHY", more.error()}});
        c->drop_precopy();
    }
    ended(key, guest::SentPrecopy{});
}

void GuestMoves::precopy_broken(const GuestKey& key, const std::string& why) {
    Cell* c = cell(key);
    if (!c || c->dumping()) return;  // the destination will refuse its image, and that tells
    const bool sending = c->sending_precopy();
    c->drop_precopy();
    if (!sending) return;  // the dump that is about to begin takes all
    p_.log.info("guest", {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"WHY", why}});
    ended(key, guest::DumpFailed{"send memory ahead: " + why, false});
}

void GuestMoves::make_precopy() {
    PrecopyLinks::Handlers h;
    h.round = [this](const GuestKey& key) { precopy_round(key); };
    h.refused = [this](const GuestKey& key, const std::string& why) {
        p_.log.info("memory is not sent ahead",
                    {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"WHY", why}});
        if (Cell* c = cell(key)) c->drop_precopy();
        ended(key, guest::SentPrecopy{});
    };
    h.broken = [this](const GuestKey& key, const std::string& why) { precopy_broken(key, why); };
    h.begin = [this](const GuestKey& key, const NodeName& sender, uint64_t bytes) -> Status {
        Cell* c = p_.machine.takes_image_from(key, sender) ? cell(key) : nullptr;
        if (!c) return fail("no memory is expected for " + key.text());
        TRY(p_.images.check_memory(key, bytes));
        return c->expect_precopy(bytes);
    };
    h.take = [this](const GuestKey& key, const PageRange& range, std::string_view bytes) -> Status {
        Cell* c = cell(key);
        return c ? c->take_precopy(range, bytes) : fail("no capsule waits for it");
    };
    h.lost = [this](const GuestKey& key) {
        if (Cell* c = cell(key)) c->precopy_lost();
    };
    h.receive_raw = [this](uint64_t number, std::function<void(ByteView)> on_bytes) {
        p_.peers.receive_raw(number, std::move(on_bytes));
    };
    h.state = [this](uint64_t number, const wire::PagesState& state) {
        p_.peers.want_pages(number, state);
    };
    h.answer = [this](uint64_t number, const wire::ImageResult& r) {
        p_.peers.answer_image(number, r);
    };
    precopy_ = std::make_unique<PrecopyLinks>(
        p_.loop, BulkIdentity{p_.config.node, p_.config.address, p_.tls, &p_.peers.ways()},
        std::move(h));
}

// -------------------------------------------------------------------------------------------------
// images that leave

void GuestMoves::ship(const Cell& cell, const guest::Do& effect) {
    transfers_->send(
        effect.key, {effect.key.id, effect.other_epoch}, effect.dest, cargo(cell, effect),
        [this, key = effect.key](const Result<Manifest>& sent) { image_sent(key, sent); });
}

Result<Transfers::Cargo> GuestMoves::cargo(const Cell& c, const guest::Do& effect) const {
    const Epoch to = effect.other_epoch;
    Transfers::Cargo cargo;
    TRY_ASSIGN(cargo.image, c.image());
    cargo.seal = p_.images.seal_of_going(c.key(), to);
    cargo.seal.destination = effect.dest.node;
    if (effect.no_hurry) cargo.rate = &p_.site.leave_rate();
    cargo.needs = c.needs();
    cargo.disk_secret = c.disk_secret();
    const GuestJob* job = p_.machine.find(c.key());
    cargo.home_locks =
        job && job->spec.files == FilesMode::home && image_has_locks(cargo.image.get());
    if (job && job->state == GuestState::frozen) return cargo;  // its image is all there is
    cargo.form = c.form();
    if (cargo.form != MoveForm::stop_and_copy) {
        TRY_ASSIGN(cargo.pages, c.pages(to));
    }
    return cargo;
}

void GuestMoves::image_sent(const GuestKey& key, const Result<Manifest>& sent) {
    precopy_->close(key);
    Status done = sent ? Status{} : Status(tl::unexpected(sent.error()));
    // The source's own copy counts from here on: it is what is left if the destination is lost.
    Cell* c = cell(key);
    const GuestJob* job = p_.machine.find(key);
    if (done && c && job && job->state != GuestState::frozen &&
        c->form() == MoveForm::stop_and_copy)
        done = c->seal(*sent);
    if (done && c) c->refuse_image(false);
    if (done) return ended(key, guest::Shipped{});
    const bool refused = job && job->state == GuestState::frozen && image_is_refused(done.error());
    if (refused) p_.images.refused(key, done.error().message);
    ended(key, guest::ShipFailed{done.error(), refused});
}

void GuestMoves::send_checkpoint(const Cell& cell, const guest::Do& effect) {
    transfers_->send(effect.key, {effect.key.id, effect.other_epoch}, effect.dest,
                     checkpoint(cell, effect),
                     [this, key = effect.key](const Result<Manifest>& sent) {
                         if (sent) return ended(key, guest::CheckpointSent{});
                         ended(key, guest::CheckpointFailed{sent.error()});
                     });
}

// A checkpoint is sent whole and sealed, while the job goes on. The image of a job that is frozen
// here is sent likewise, and the job leaves with it.
Result<Transfers::Cargo> GuestMoves::checkpoint(const Cell& c, const guest::Do& effect) const {
    Transfers::Cargo cargo;
    TRY_ASSIGN(cargo.image, c.open_sealed());
    const GuestJob* const job = p_.machine.find(c.key());
    if (job && job->state == GuestState::frozen && image_has_locks(cargo.image.get()))
        return fail("it holds locks of files, which are kept here");
    cargo.seal = p_.images.seal_of_going(c.key(), effect.other_epoch);
    cargo.seal.destination = effect.dest.node;
    cargo.needs = c.needs();
    cargo.disk_secret = c.disk_secret();
    return cargo;
}

// -------------------------------------------------------------------------------------------------
// images that come

// An image has come whole. A checkpoint that is only kept here need not be one that this node can
// run.
Status GuestMoves::image_came(const GuestKey& key, const Manifest& m, MoveForm form) {
    Cell* c = cell(key);
    // An image of another site says the name that its job has there.
    if (!c || of_site(m.job.text()).rest != of_site(key.id.text()).rest)
        return fail("the image is of job " + m.job.text());
    if (c->job().kept) {
        c->keep(m, [this, key, form, bytes = static_cast<int64_t>(m.bytes())](const Status& kept) {
            if (kept) return ended(key, guest::ImageReceived{bytes, form});
            if (p_.machine.expects_image(key))
                ended(key, guest::ImageFailed{"keep its image: " + kept.error().message});
        });
        return {};
    }
    TRY(can_take(p_.site.cell_site().machine, m.machine));
    TRY(c->seal(m));
    if (form != MoveForm::stop_and_copy && !p_.site.cell_site().pages_possible)
        return fail("this node cannot take memory past an image");
    if (form != MoveForm::stop_and_copy) TRY(p_.images.check_left_out(key, *c));
    c->expect_pages(form);
    ended(key, guest::ImageReceived{static_cast<int64_t>(m.bytes()), form});
    return {};
}

void GuestMoves::make_transfers() {
    Transfers::Handlers transfers;
    transfers.expects = [this](const GuestKey& key, const NodeName& sender) {
        return p_.machine.takes_image_from(key, sender);
    };
    transfers.place = [this](const GuestKey& key) { return p_.images.place(key); };
    transfers.seal = [this](const GuestKey& key, const NodeName& sender, Epoch from) {
        return p_.images.seal_of_coming(key, sender, from);
    };
    transfers.received = [this](const GuestKey& key, const Manifest& m, MoveForm form) {
        return image_came(key, m, form);
    };
    transfers.pages = [this](const GuestKey& key, const PageRange& range,
                             std::string_view bytes) -> Status {
        Cell* c = cell(key);
        return c ? c->put_pages(range, bytes) : Status{};
    };
    transfers.failed = [this](const GuestKey& key, const std::string& why) {
        if (p_.machine.expects_image(key)) return ended(key, guest::ImageFailed{why});
        ended(key, guest::PagesLost{why});
    };
    transfers.want = [this](uint64_t number, const wire::PagesState& state) {
        p_.peers.want_pages(number, state);
    };
    transfers.receive_raw = [this](uint64_t number, std::function<void(ByteView)> on_bytes) {
        p_.peers.receive_raw(number, std::move(on_bytes));
    };
    transfers.answer = [this](uint64_t number, const wire::ImageResult& r) {
        p_.peers.answer_image(number, r);
    };
    transfers_ = std::make_unique<Transfers>(
        p_.loop, BulkIdentity{p_.config.node, p_.config.address, p_.tls, &p_.peers.ways()},
        std::move(transfers));
}

void GuestMoves::want_pages(const GuestKey& key, bool restored, uint64_t put,
                            const std::vector<PageRange>& wishes) {
    wire::PagesState state{put, restored, {}};
    for (const PageRange& w : wishes) {
        if (state.wishes.size() == wire::page_wishes_max)
            transfers_->want(key, std::exchange(state, {put, restored, {}}));
        state.wishes.push_back(w);
    }
    transfers_->want(key, state);
}

}  // namespace souk
